"""Reads request bodies as strict JSON: RFC 8259, UTF-8, no NaN, no lone surrogates, bounded nesting."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from itertools import accumulate
from typing import Any, Final

import msgspec
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.errors import InvalidJson

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS: Final = b"[]{}"
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_STEPS: Final = bytes(
    {ord("["): 1, ord("{"): 1, ord("]"): 255, ord("}"): 255}.get(byte, 0) for byte in range(256)
)
_BLOCK: Final = 1 << 16


def decode_json(body: bytes, max_depth: int) -> Any:
    """The value of a JSON text. Raises InvalidJson. Takes time in proportion to the length, whatever the content."""
    if not body.strip(b" \t\r\n"):
        raise InvalidJson("The request body is empty; a JSON object is expected.")
    if deeper_than(body, max_depth):
        raise InvalidJson(f"The request body is nested more than {max_depth} levels deep.")
    try:
        return msgspec.json.decode(body)
    except UnicodeDecodeError as error:
        raise InvalidJson(f"The request body is not UTF-8: {error.reason} at byte {error.start}.") from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise InvalidJson(f"The request body is not valid JSON: {reason}.") from None


def deeper_than(body: bytes, max_depth: int) -> bool:
    """Whether a JSON text nests arrays and objects deeper than that. Never recurses."""
    if body.count(b"[") + body.count(b"{") <= max_depth:
        return False
    steps = memoryview(_STRING.sub(b"", body).translate(_STEPS, _OTHERS)).cast("b")
    depth = 0
    # In blocks, so that a hostile beginning is seen without reading the rest.
    for start in range(0, len(steps), _BLOCK):
        block = steps[start : start + _BLOCK]
        if max(accumulate(block, initial=depth)) > max_depth:
            return True
        depth += sum(block)
    return False


class JsonRequest(Request):
    """A request whose `json()` is strict."""

    async def json(self) -> Any:
        """The decoded body, once. Raises InvalidJson, and HttpError when the body breaks a limit on its way in."""
        if not hasattr(self, "_json"):
            self._json = decode_json(await self.body(), self.app.state.max_json_depth)
        return self._json


class JsonRoute(APIRoute):
    """A route whose body FastAPI validates after it was read as strict JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler behind the strict reader."""
        handle = super().get_route_handler()
        takes_body = self.body_field is not None

        async def strict(request: Request) -> Response:
            request = JsonRequest(request.scope, request.receive)
            if takes_body:
                # Read here: FastAPI would turn whatever is raised while it reads into an error of its own.
                await request.json()
            return await handle(request)

        return strict
