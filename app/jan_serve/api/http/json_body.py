"""Reads request bodies as strict JSON: RFC 8259, UTF-8, no NaN, no lone surrogates, bounded nesting."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Final

import msgspec
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.api.http.json_place import line_and_column
from jan_serve.errors import InvalidJson

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_BRACKETS: Final = b"[]{}"
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_STEPS: Final = bytes(
    {ord("["): 1, ord("{"): 1, ord("]"): 255, ord("}"): 255}.get(byte, 0) for byte in range(256)
)
_FEW: Final = 1 << 16
# What takes long in a body is not its bytes but its parts.
MAX_CONTAINERS: Final = 250_000
MAX_VALUES: Final = 1 << 20


def decode_json(body: bytes, max_depth: int) -> Any:
    """The value of a JSON text. Raises InvalidJson. Takes time in proportion to the length, whatever the content."""
    if not body.strip(b" \t\r\n"):
        raise InvalidJson("The request body is empty; a JSON object is expected.", place=(1, 0))
    _check_structure(body, max_depth)
    try:
        with _no_collection():
            return msgspec.json.decode(body)
    except UnicodeDecodeError as error:
        place = line_and_column(body, error.start + 1)
        message = f"The request body is not UTF-8: {error.reason} at byte {error.start}."
        raise InvalidJson(message, place=place) from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        place = _place(body, reason)
        raise InvalidJson(f"The request body is not valid JSON: {reason}.", place=place) from None


def _place(body: bytes, reason: str) -> tuple[int, int]:
    """Line and column (both from 1) of the byte that the reason names; without one the body ends too early."""
    found = _BYTE.search(reason)
    return line_and_column(body, len(body) if found is None else int(found[1]) + 1)


def _check_structure(body: bytes, max_depth: int) -> None:
    """Refuse what nests too deep or has more parts than any honest request. Never recurses."""
    opening = body.count(b"[") + body.count(b"{")
    if opening <= max_depth and body.count(b",") <= MAX_VALUES:
        return
    bare = _STRING.sub(b"", body)
    if _deeper_than(bare.translate(_STEPS, _OTHERS), max_depth):
        raise InvalidJson(f"The request body is nested more than {max_depth} levels deep.")
    containers = bare.count(b"[") + bare.count(b"{")
    for count, limit, what in (
        (containers, MAX_CONTAINERS, "arrays and objects"),
        (containers + bare.count(b","), MAX_VALUES, "values"),
    ):
        if count > limit:
            raise InvalidJson(f"The request body has more than {limit} {what}.")


def _deeper_than(steps: bytes, max_depth: int) -> bool:
    # A hostile beginning is seen without reading the rest.
    if max(accumulate(memoryview(steps[:_FEW]).cast("b"), initial=0)) > max_depth:
        return True
    if len(steps) <= _FEW:
        return False
    # Loaded late: the front has no other use for it, and honest bodies have few brackets.
    import numpy as np

    return bool(np.frombuffer(steps, np.int8).cumsum(dtype=np.int32).max() > max_depth)


@contextmanager
def _no_collection() -> Generator[None]:
    """Without the garbage collector: it would look again and again at what is only being built."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


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
                self.check_body(await request.body())
                await request.json()
            try:
                return await handle(request)
            except RequestValidationError as error:
                raise self.refusal(error, await request.body() if takes_body else b"") from None

        return strict

    def check_body(self, body: bytes) -> None:
        """For dialects with limits of their own. Raises HttpError."""

    def refusal(self, error: RequestValidationError, body: bytes) -> Exception:
        """What is raised for a request that breaks the route's schema. For dialects that say where in the body."""
        return error
