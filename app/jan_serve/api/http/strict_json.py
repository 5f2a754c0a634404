"""Strict JSON: RFC 8259, UTF-8, no NaN, bounded nesting. Half a surrogate pair is read as U+FFFD."""

from __future__ import annotations

import gc
import re
from collections.abc import Generator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Final

import msgspec

from jan_serve.api.http.json_position import line_and_column
from jan_serve.errors import InvalidJson
from jan_serve.text.lone_surrogates import without_lone_surrogates

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_BRACKETS: Final = b"[]{}"
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_STEPS: Final = bytes(
    {ord("["): 1, ord("{"): 1, ord("]"): 255, ord("}"): 255}.get(byte, 0) for byte in range(256)
)
_FEW: Final = 1 << 16
# The cost of a body depends on its parts rather than its bytes.
MAX_CONTAINERS: Final = 250_000
MAX_VALUES: Final = 1 << 20


def decode_json(body: bytes, max_depth: int) -> Any:
    """Raises InvalidJson. Takes time linear in the length, whatever the content."""
    if not body.strip(b" \t\r\n"):
        raise InvalidJson("The request body is empty; a JSON object is expected.", place=(1, 0))
    _check_structure(body, max_depth)
    try:
        with _no_collection():
            return _decode(body)
    except UnicodeDecodeError as error:
        position = line_and_column(body, error.start + 1)
        message = f"The request body is not UTF-8: {error.reason} at byte {error.start}."
        raise InvalidJson(message, place=position) from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        position = _position(body, reason)
        raise InvalidJson(f"The request body is not valid JSON: {reason}.", place=position) from None


def _decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except UnicodeDecodeError:
        body.decode()  # raises with the place in the body, which the one of a text is not
        raise
    except msgspec.DecodeError:
        repaired = without_lone_surrogates(body)
        if repaired == body:
            raise
        return msgspec.json.decode(repaired)


def _position(body: bytes, reason: str) -> tuple[int, int]:
    """Line and column (both from 1) of the byte in msgspec's message; without one the body is truncated."""
    found = _BYTE.search(reason)
    return line_and_column(body, len(body) if found is None else int(found[1]) + 1)


def _check_structure(body: bytes, max_depth: int) -> None:
    """Raises InvalidJson for nesting or counts beyond the limits. Does not recurse."""
    opening = body.count(b"[") + body.count(b"{")
    if opening <= max_depth and body.count(b",") <= MAX_VALUES:
        return
    bare = _STRING.sub(b"", body)
    if _deeper_than(bare.translate(_STEPS, _OTHERS), max_depth):
        raise InvalidJson(f"The request body is nested more than {max_depth} levels deep.")
    containers = bare.count(b"[") + bare.count(b"{")
    for count, limit, kind in (
        (containers, MAX_CONTAINERS, "arrays and objects"),
        (containers + bare.count(b","), MAX_VALUES, "values"),
    ):
        if count > limit:
            raise InvalidJson(f"The request body has more than {limit} {kind}.")


def _deeper_than(steps: bytes, max_depth: int) -> bool:
    # Most hostile bodies show in their first bytes.
    if max(accumulate(memoryview(steps[:_FEW]).cast("b"), initial=0)) > max_depth:
        return True
    if len(steps) <= _FEW:
        return False
    # Imported late: the front has no other use for it, and real bodies have few brackets.
    import numpy as np

    return bool(np.frombuffer(steps, np.int8).cumsum(dtype=np.int32).max() > max_depth)


@contextmanager
def _no_collection() -> Generator[None]:
    """Disables the garbage collector, which would traverse the growing value again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
