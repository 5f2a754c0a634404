"""Strict JSON: RFC 8259, UTF-8, no NaN, bounded nesting and cost. Half a surrogate pair is read as U+FFFD."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, Final, TypeVar

import msgspec

from jan_serve.errors import InvalidJson
from jan_serve.text.valid_text import without_lone_surrogates

T = TypeVar("T")

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS: Final = b"[]{}"
_OTHERS: Final = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_STEPS: Final = bytes(
    {ord("["): 1, ord("{"): 1, ord("]"): 255, ord("}"): 255}.get(byte, 0) for byte in range(256)
)
_EXTREME: Final = re.compile(rb"[0-9][eE][+-]?[0-9]{3}")
MAX_DIGITS: Final = 500
_LONG: Final = re.compile(rb"(?<![0-9])[0-9]{%d}" % (MAX_DIGITS + 1))
_IS_INSIDE: Final = b"\x01"
"""Outside of strings, the decoder refuses this byte."""

PIECE_BYTES: Final = 1 << 15
"""Size of what is judged at once, in at most some 5 ms."""

# The cost of a body depends on its parts rather than its bytes. Within these limits, decoding takes about 0.1 s.
MAX_CONTAINERS: Final = 250_000
MAX_MEMBERS: Final = 250_000
MAX_VALUES: Final = 1 << 20
MAX_EXTREME: Final = 10_000
"""Numbers with exponents of three digits, which take msgspec 200 times as long as others. One that two pieces share
does not count."""


class JsonReader:
    """Decodes bodies without holding up the event loop: large ones by turns, a piece in each turn of the loop."""

    def __init__(self, max_depth: int) -> None:
        self._max_depth = max_depth
        self._turn = asyncio.Lock()

    async def decode(self, body: bytes) -> Any:
        """Raises InvalidJson."""
        if len(body) <= PIECE_BYTES:
            return decode_json(body, self._max_depth)
        pieces = _check_pieces(body, self._max_depth)
        is_judged = False
        while not is_judged:
            async with self._turn:
                await asyncio.sleep(0)
                is_judged = next(pieces, True)
        async with self._turn:
            await asyncio.sleep(0)
            return _decode(body)

    async def work(self, body: bytes, function: Callable[[], T]) -> T:
        """The result of a function whose cost grows with the parts of a body: in a thread if that is large, one at a
        time."""
        if len(body) <= PIECE_BYTES:
            return function()
        async with self._turn:
            return await asyncio.to_thread(function)


def decode_json(body: bytes, max_depth: int) -> Any:
    """Raises InvalidJson. Takes time linear in the length, whatever the content."""
    for _ in _check_pieces(body, max_depth):
        pass
    return _decode(body)


def _decode(body: bytes) -> Any:
    if not body.strip(b" \t\r\n"):
        raise InvalidJson("The request body is empty; a JSON object is expected.")
    try:
        with _no_collection():
            return _parsed(body)
    except UnicodeDecodeError as error:
        raise InvalidJson(f"The request body is not UTF-8: {error.reason} at byte {error.start}.") from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        reason = str(error).removeprefix("JSON is malformed: ")
        raise InvalidJson(f"The request body is not valid JSON: {reason}.") from None


def _parsed(body: bytes) -> Any:
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


def _check_pieces(body: bytes, max_depth: int) -> Generator[bool]:
    """Judges a piece of the body in each step, up to the first fault; True with the last one.

    Raises InvalidJson for nesting or counts beyond the limits. Exact up to the first byte that is not JSON.
    """
    if len(body) <= PIECE_BYTES and body.count(b"[") + body.count(b"{") <= max_depth:
        return  # nothing in so few bytes is expensive
    structure = _Structure(max_depth)
    at, is_inside = 0, False
    while at < len(body):
        piece = body[at : at + PIECE_BYTES]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2 and len(piece) > 1:
            piece = piece[:-1]  # an escaped character stays together
        at += len(piece)
        if not is_inside or b'"' in piece:
            # The quote at the end closes a string that goes on behind this piece, and the byte behind it shows that;
            # else both are a string that is removed.
            bare = _STRING.sub(b"", b'%b%b"%b' % (b'"' if is_inside else b"", piece, _IS_INSIDE))
            is_inside = bare.endswith(_IS_INSIDE)
            structure.add(bare)
        yield at >= len(body)


class _Structure:
    """What was counted in a body, without its strings. Does not recurse."""

    def __init__(self, max_depth: int) -> None:
        self._max_depth = max_depth
        self._depth = 0
        self._containers = self._commas = self._members = self._extreme = 0

    def add(self, bare: bytes) -> None:
        """bare: the next part. Raises InvalidJson at a limit."""
        steps = memoryview(bare.translate(_STEPS, _OTHERS)).cast("b")
        if max(accumulate(steps, initial=self._depth)) > self._max_depth:
            raise InvalidJson(f"The request body is nested more than {self._max_depth} levels deep.")
        self._depth += sum(steps)
        self._containers += bare.count(b"[") + bare.count(b"{")
        self._commas += bare.count(b",")
        self._members += bare.count(b":")
        self._extreme += len(_EXTREME.findall(bare))
        for count, limit, kind in (
            (self._containers, MAX_CONTAINERS, "arrays and objects"),
            (self._members, MAX_MEMBERS, "members of objects"),
            (self._containers + self._commas, MAX_VALUES, "values"),
            (self._extreme, MAX_EXTREME, "numbers with exponents of three digits"),
        ):
            if count > limit:
                raise InvalidJson(f"The request body has more than {limit} {kind}.")
        if _LONG.search(bare) is not None:
            raise InvalidJson(f"The request body has a number of more than {MAX_DIGITS} digits.")


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
