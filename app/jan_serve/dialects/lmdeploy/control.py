"""LMDeploy's control plane: abort requests, sleep, wake and terminate the server, replace weights."""

from __future__ import annotations

import asyncio
import binascii
from binascii import a2b_base64
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from typing_extensions import TypedDict

from jan_serve.core.caller import key_of_request
from jan_serve.dialects.lmdeploy.serving import Serving
from jan_serve.dialects.ports import ControlPlane
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, Int, LaxModel
from jan_serve.errors import InvalidRequest
from jan_serve.http.errors import http_problem
from jan_serve.http.replies import json_reply


class AbortRequest(LaxModel):
    """The session to abort, or all. `abort_message` and `finished_reason` have no effect, as in LMDeploy."""

    session_id: Int | None = -1
    abort_all: bool = False
    abort_message: str | None = None
    finished_reason: dict[str, Any] | None = None


class SleepState(TypedDict):
    is_sleeping: bool


class UpdateWeightsRequest(LaxModel):
    """Part of new weights; `finished` marks the last part.

    serialized_named_tensors: base64 of a GGUF file with the tensors, or a list of such texts. load_format must be
    "gguf": LMDeploy's own formats are pickles, which are rejected. model: absent is the default model.
    """

    serialized_named_tensors: (
        str
        | Annotated[list[str], FirstError(), AtMost(limits.MAX_EMBEDDING_INPUTS, "serialized_named_tensors")]
        | dict[str, Any]
    )
    load_format: str | None = None
    finished: bool = False
    model: str | None = None


_NO_ABORT: Final = "This server does not support abort requests. Enable with --enable-abort-handling flag."
_NO_TERMINATE: Final = (
    "The server can not be terminated. Please add --allow-terminate-by-client when start the server."
)
_ABORT_DISABLED: Final[dict[int | str, dict[str, Any]]] = {
    501: {"description": "Aborting is not enabled", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


def add_control_routes(router: APIRouter, serving: Serving, control: ControlPlane, prefix: str) -> None:
    @router.post(f"{prefix}/abort_request", response_class=Response, responses=_ABORT_DISABLED)
    async def abort_request(body: AbortRequest) -> Response:
        """Abort one request of the caller's key, or all of them, including queued ones."""
        if not control.may_abort:
            return PlainTextResponse(_NO_ABORT, HTTPStatus.NOT_IMPLEMENTED)
        if body.abort_all:
            serving.sessions.abort_all(key_of_request())
        elif body.session_id is None or not serving.sessions.abort(body.session_id):
            raise InvalidRequest(f"Session {body.session_id} not found.", param="session_id")
        return Response()

    @router.post(f"{prefix}/sleep", response_class=Response)
    async def sleep(
        level: Annotated[str, Query(description="1 keeps the prefix cache on disk; 2 keeps nothing.")] = "1",
    ) -> Response:
        """Abort running requests and free all memory. Requests are rejected until `/wakeup`."""
        sleep_level = _level(level)
        # No await before new requests are rejected, so none can slip in.
        serving.sessions.abort_all(None)
        await control.sleep(sleep_level)
        return Response()

    @router.post(f"{prefix}/wakeup", response_class=Response)
    async def wakeup(
        tags: Annotated[
            list[str] | None,
            Query(
                description="`weights` and `kv_cache`; without tags, both. Requests are served once both are awake."
            ),
        ] = None,
    ) -> Response:
        """Serve again. Returns once the previously loaded models are loaded."""
        await control.wake(tags or ())
        return Response()

    @router.get(f"{prefix}/is_sleeping", response_model=SleepState)
    async def is_sleeping() -> Response:
        """Report whether the server sleeps."""
        return json_reply({"is_sleeping": control.is_sleeping})

    @router.post(f"{prefix}/update_weights", response_model=None)
    async def update_weights(body: UpdateWeightsRequest) -> Response:
        """Replace tensors of a model. Collected until `finished`, then swapped in between requests."""
        parts = await asyncio.to_thread(_gguf_parts, body)
        await control.update_weights(body.model, parts, finished=body.finished)
        return json_reply(None)

    @router.get(f"{prefix}/terminate", response_class=Response)
    async def terminate(request: Request) -> Response:
        """Shut the server down as a signal would: running requests may finish. Only if the server allows it."""
        if not control.may_terminate:
            raise InvalidRequest(_NO_TERMINATE)
        if _is_cross_site(request):
            raise http_problem(HTTPStatus.FORBIDDEN, "forbidden_origin", "Web pages may not end the server.")
        return Response(background=BackgroundTask(control.terminate))


def _is_cross_site(request: Request) -> bool:
    """Whether a web page of another origin may have sent the request.

    Browsers omit Sec-Fetch-Site for plain http other than loopback (W3C Fetch Metadata): then no browser is trusted.
    """
    site = request.headers.get("sec-fetch-site")
    if site is None:
        return request.headers.get("user-agent", "").startswith("Mozilla/")
    return site not in ("none", "same-origin")


def _gguf_parts(body: UpdateWeightsRequest) -> list[bytes]:
    """The GGUF files in the body. Blocks while decoding. Raises InvalidRequest."""
    if body.load_format != "gguf":
        raise InvalidRequest(
            f"load_format: {(body.load_format or 'null')[:40]!r} stands for pickled tensors. They are refused, because"
            " reading a pickle runs whatever code it holds. Send a GGUF file with the tensors, as base64, and"
            ' load_format "gguf".',
            param="load_format",
        )
    tensors = body.serialized_named_tensors
    if isinstance(tensors, dict):
        raise InvalidRequest(
            "serialized_named_tensors: must be base64 of a GGUF file, or a list of such texts",
            param="serialized_named_tensors",
        )
    texts = [tensors] if isinstance(tensors, str) else tensors
    try:
        return [a2b_base64(text, strict_mode=True) for text in texts]
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(
            f"serialized_named_tensors: this is not base64: {error}", param="serialized_named_tensors"
        ) from None


def _level(text: str) -> int:
    if not text.isascii() or not text.removeprefix("-").isdigit():
        raise InvalidRequest('The "level" query parameter must be an integer.', param="level")
    if text not in ("1", "2"):
        raise InvalidRequest('The "level" query parameter must be 1 or 2.', param="level")
    return int(text)
