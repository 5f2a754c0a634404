"""`POST /generate` at the root: two protocols have this route, and the members of the body tell which one is meant.

`inputs` is Text Generation Inference's, `prompt` and `input_ids` are LMDeploy's; with none of them, `parameters` is the
former's. Decided before the body is validated, so that each protocol refuses what is meant for it in its own words.
"""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jan_serve.api.dialect import reroute
from jan_serve.api.errors import HttpError

SHARED_PATH: Final = "/generate"
LMDEPLOY_PATH: Final = "/lmdeploy/generate"
_ABSENT: Final = msgspec.Raw()


class _Members(msgspec.Struct, frozen=True):
    """The members that decide. No others are made into objects, however many there are."""

    inputs: msgspec.Raw = _ABSENT
    prompt: msgspec.Raw = _ABSENT
    input_ids: msgspec.Raw = _ABSENT
    parameters: msgspec.Raw = _ABSENT


_members: Final = msgspec.json.Decoder(_Members).decode


def is_lmdeploys(body: bytes) -> bool:
    """Whether a body is meant for LMDeploy. What is no JSON object is not."""
    try:
        members = _members(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if members.inputs is not _ABSENT:
        return False
    told = members.prompt is not _ABSENT or members.input_ids is not _ABSENT
    return told or members.parameters is _ABSENT


class GenerateDispatch:
    """Innermost middleware. Sends LMDeploy's requests on to that dialect's strict mount, whose routes these are."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != SHARED_PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = _ReadBody(receive)
        if is_lmdeploys(await body.read()):
            reroute(scope, LMDEPLOY_PATH)
        await self._app(scope, body, send)


class _ReadBody:
    """An ASGI receive that was read ahead; what went wrong while reading is told to whoever reads next."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: list[Message] = []
        self._refused: HttpError | None = None

    async def read(self) -> bytes:
        """The whole body; what came of it where the client left or a limit was broken."""
        parts: list[bytes] = []
        more = True
        while more:
            try:
                message = await self._receive()
            except HttpError as error:
                self._refused = error
                break
            self._messages.append(message)
            parts.append(message.get("body", b""))
            more = message["type"] == "http.request" and message.get("more_body", False)
        self._messages.reverse()
        return b"".join(parts)

    async def __call__(self) -> Message:
        if self._messages:
            return self._messages.pop()
        if self._refused is not None:
            raise self._refused
        return await self._receive()
