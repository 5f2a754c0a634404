"""The routes that pull, name, make and delete models, and the refusals of what belongs to ollama.com."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator, Iterator
from http import HTTPStatus
from typing import Annotated, Any, Final, NotRequired

import msgspec
from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.closing import closing
from jan_serve.core.latest_tag import without_latest_tag
from jan_serve.core.models import ModelDetails, PullStep, Variant, VariantMessage
from jan_serve.dialects.model_store import ModelStore
from jan_serve.dialects.ollama.common import STREAMED, ModelFields, OptionValues, model_name, parse_options
from jan_serve.dialects.ollama.errors import error_body
from jan_serve.dialects.ollama.outline import UPLOADS
from jan_serve.dialects.ollama.serving import Serving, line
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, Strings, WireModel
from jan_serve.errors import InvalidRequest, ModelNotFound
from jan_serve.http.disconnect import while_connected
from jan_serve.http.errors import http_problem
from jan_serve.http.replies import json_reply
from jan_serve.http.request_record import record_of
from jan_serve.http.sse import EventStream, frames_of


class OllamaPullRequest(ModelFields):
    """A model to download: a name of the catalogue, `hf.co/org/repo` or `org/repo:QUANT`."""

    stream: bool | None = True
    insecure: bool | None = None


class OllamaProgress(TypedDict):
    """A line of a stream; the last one is `success`. total, completed: bytes of the file with this digest."""

    status: str
    digest: NotRequired[str]
    total: NotRequired[int]
    completed: NotRequired[int]


class OllamaDeleteRequest(ModelFields):
    """A model to delete."""


class OllamaCopyRequest(WireModel):
    """A second name for a model."""

    source: str
    destination: str


class OllamaCreateMessage(WireModel):
    role: str
    content: str = ""


class OllamaCreateRequest(ModelFields):
    """A named variant of a model (`from`), or a model of an uploaded GGUF file (`files`: digests by file name)."""

    from_: Annotated[str | None, Field(alias="from", description="The model of which it is a variant.")] = (
        None
    )
    files: Annotated[dict[str, str] | None, AtMost(limits.MAX_FILES, "files")] = None
    adapters: Annotated[dict[str, str] | None, AtMost(limits.MAX_FILES, "adapters")] = None
    template: Annotated[str | None, Field(description="Chat template, in Jinja.")] = None
    system: Annotated[str | None, Field(description="Of chats without a system message.")] = None
    parameters: OptionValues = None
    messages: (
        Annotated[list[OllamaCreateMessage], FirstError(), AtMost(limits.MAX_MESSAGES, "messages")] | None
    ) = None
    license: str | Strings | None = None
    quantize: str | None = None
    modelfile: str | None = None
    stream: bool | None = True


_GO: Final = re.compile(
    r"\{\{-?\s*(?:[.$]|/\*|if\s|(?:range|with)\s+(?!(?:if|is|in|and|or|not|else)\b(?!\s+[.$(]))[\w.$]"
    r'|(?:define|template|block)\s+")'
)
"""What begins an action of Go's templates, in which Ollama's are written, and is no expression of Jinja: there, `range`
may be called, and the other words may be names."""
_GO_IS_LEFT_OUT: Final = (
    "template: Go's language is not rendered here; the model keeps its own template (Jinja)"
)


def check_create(body: OllamaCreateRequest) -> None:
    """Raises InvalidRequest for what this server does not do."""
    for field, reason in (
        ("modelfile", "send its parts: from, system, template, parameters, messages"),
        ("quantize", "this server does not quantise models; pull another quantisation"),
    ):
        if getattr(body, field):
            raise InvalidRequest(f"{field}: not supported; {reason}", param=field)
    if bool(body.from_) == bool(body.files):
        raise InvalidRequest("either `from` or `files` is needed, and not both", param="from")
    if body.files and len(body.files) > 1:
        raise InvalidRequest("files: one GGUF file makes a model, and nothing else", param="files")
    if body.adapters and (len(body.adapters) > 1 or not body.from_):
        raise InvalidRequest("adapters: one GGUF file, for a variant of the model `from`", param="adapters")


def variant_of(
    body: OllamaCreateRequest,
    name: str,
    base: str,
    inherited: Variant | None,
    now: float,
    adapter: str | None = None,
) -> Variant:
    """base: canonical name. inherited: what `from` names. adapter: as ModelStore keeps it. Raises InvalidRequest."""
    options = parse_options(body.parameters)
    values = msgspec.structs.asdict(options.sampling) | msgspec.structs.asdict(options.stopping)
    own = Variant(
        name=name,
        base=base,
        created_at=now,
        system=body.system or None,
        template=body.template or None,
        messages=tuple(VariantMessage(each.role, each.content) for each in body.messages or ()),
        defaults={field: values[field] for field in sorted(options.given)},
        parameters=dict(body.parameters or {}),
        adapter=adapter,
        license=body.license if isinstance(body.license, str) else "\n".join(body.license or ()) or None,
    )
    if inherited is None:
        return own
    changes: dict[str, Any] = {
        "defaults": {**inherited.defaults, **own.defaults},
        "parameters": {**inherited.parameters, **own.parameters},
    }
    for field in ("system", "template", "messages", "license", "adapter"):
        changes[field] = getattr(own, field) or getattr(inherited, field)
    return msgspec.structs.replace(own, **changes)


class PullLines:
    """OllamaProgress by file, in order of transfer: the bytes received so far belong to the first files."""

    def __init__(self) -> None:
        self._last: OllamaProgress | None = None

    def chunks(self, step: PullStep) -> Iterator[OllamaProgress]:
        """Each line once: a pull reports more often than its progress changes."""
        for progress in self._lines(step):
            if progress != self._last:
                self._last = progress
                yield progress

    def _lines(self, step: PullStep) -> Iterator[OllamaProgress]:
        if self._last is None:
            yield {"status": "pulling manifest"}
        if step.note is not None:
            yield {"status": step.note}
        left = step.received
        for file in step.files:
            here = min(left, file.size_bytes)
            left -= here
            if step.done or here < file.size_bytes:
                yield {
                    "status": f"pulling {file.sha256[:12]}",
                    "digest": f"sha256:{file.sha256}",
                    "total": file.size_bytes,
                    "completed": here,
                }
                if not step.done:
                    return
        if step.done:
            yield {"status": "verifying sha256 digest"}
            yield {"status": "writing manifest"}
            yield {"status": "success"}


_NO_ACCOUNT: Final = "this server has no account at ollama.com"
_NO_SEARCH: Final = "this server does not search the web"
_NO_FETCH: Final = "this server fetches no web pages"
_REFUSED: Final = {
    "/api/push": "this server does not publish models",
    **dict.fromkeys(("/api/me", "/api/signin", "/api/signout"), _NO_ACCOUNT),
    **dict.fromkeys(("/api/experimental/web_search", "/api/web_search"), _NO_SEARCH),
    **dict.fromkeys(("/api/experimental/web_fetch", "/api/web_fetch"), _NO_FETCH),
}


def add_management_routes(router: APIRouter, serving: Serving, store: ModelStore) -> None:
    @router.post("/api/pull", summary="Download a model", response_model=OllamaProgress, responses=STREAMED)
    async def pull(request: Request, body: OllamaPullRequest) -> Response:
        """Download a model from the hub. It stops if the client disconnects; the next pull resumes it."""
        steps = store.pull(without_latest_tag(model_name(body)))
        if body.stream is False:
            await while_connected(request, _drained(steps))
            return json_reply({"status": "success"})
        record_of(request.scope).stream = True
        first = await while_connected(request, anext(steps))
        frames = frames_of(
            steps,
            PullLines().chunks,
            error_body,
            record=record_of(request.scope),
            first=[first],
            done=b"",
            framed=line,
        )
        return EventStream(frames, serving.streams)

    @router.post("/api/copy", summary="Name a model again", response_class=Response)
    async def copy(body: OllamaCopyRequest) -> Response:
        """A second name for a model, or for a variant as it is now."""
        try:
            found = await store.details(body.source)
        except ModelNotFound:
            reason = f'model "{body.source}" not found'
            raise http_problem(HTTPStatus.NOT_FOUND, ModelNotFound.code, reason) from None
        nothing = OllamaCreateRequest.model_validate({"from": body.source})
        await store.add_variant(_variant(nothing, body.destination, found))
        return Response()

    @router.post("/api/create", summary="Make a variant", response_model=OllamaProgress, responses=STREAMED)
    async def create(request: Request, body: OllamaCreateRequest) -> Response:
        """A named variant of a model with its own system message, template, parameters, messages and LoRA adapter."""
        name = without_latest_tag(model_name(body))
        check_create(body)
        notes: tuple[str, ...] = ()
        if body.template and _GO.search(body.template):
            body.template, notes = None, (_GO_IS_LEFT_OUT,)
            record_of(request.scope).warnings = notes
        base = body.from_ or ""
        if body.files:
            base = await store.make_model(next(iter(body.files.values())), name)
        found = await store.details(base)
        adapter = None
        if body.adapters:
            [digest] = body.adapters.values()
            adapter = await store.keep_adapter(digest, name, found.model.name)
        await store.add_variant(_variant(body, name, found, adapter))
        lines = [{"status": status} for status in (*notes, "writing manifest", "success")]
        if body.stream is False:
            return json_reply(lines[-1])
        return Response(b"".join(map(line, lines)), media_type=serving.streams.media_type)

    @router.delete("/api/delete", summary="Delete a model", response_class=Response)
    async def delete(body: OllamaDeleteRequest) -> Response:
        """Delete a model's files. 409 while requests use it."""
        await store.delete(model_name(body))
        return Response()


def add_upload_routes(router: APIRouter, store: ModelStore) -> None:
    path = UPLOADS + "/{digest}"

    @router.head(path, include_in_schema=False)
    async def has_upload(digest: str) -> Response:
        """Whether a file with this digest is there."""
        found = await store.has_upload(digest)
        return Response(status_code=HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)

    @router.post(
        path,
        summary="Upload a GGUF file",
        status_code=201,
        response_class=Response,
        responses={200: {"description": "It is there already"}},
    )
    async def upload(request: Request, digest: str) -> Response:
        """Keep a file, the body, for /api/create."""
        if await store.has_upload(digest):
            return Response()
        length = request.headers.get("content-length", "")
        n_bytes = int(length) if length.isdigit() else 0
        await store.receive_upload(digest, n_bytes, request.stream())
        return Response(status_code=HTTPStatus.CREATED)


def _variant(
    body: OllamaCreateRequest, name: str, found: ModelDetails, adapter: str | None = None
) -> Variant:
    inherited = found.variant
    return variant_of(body, without_latest_tag(name), found.model.name, inherited, time.time(), adapter)


async def _drained(steps: AsyncGenerator[PullStep]) -> None:
    async with closing(steps):
        async for _ in steps:
            pass


def add_refusals(router: APIRouter) -> None:
    async def refuse(request: Request) -> Response:
        reason = _REFUSED[request.scope["path"]]
        raise http_problem(HTTPStatus.NOT_FOUND, "not_found", reason)

    for path in _REFUSED:
        router.add_api_route(path, refuse, methods=["POST"], include_in_schema=False)
