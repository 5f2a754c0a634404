"""Tokenises texts of any length in parts, with other requests' work between them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from jan_serve.engine.llama.text_cuts import TextCuts
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.errors import InvalidRequest

T = TypeVar("T")

Work = Generator["Future[Any] | None", None, T]
"""Work in parts, none longer than some hundredths of a second. Others have their turn after each; a future that is
yielded must be done before the next part."""

PART_BYTES: Final = 8 << 10
"""The time to take special tokens out of a part grows with the square of their number: 25 ms for `<s>` alone."""
_ASIDE_BYTES: Final = 32 << 10
"""A longer stretch without a cut is tokenised by another thread."""
MAX_STRETCH: Final = 1 << 20
"""Bytes without a cut. llama.cpp takes about a second for them, cannot be stopped, and needs 350 bytes for each."""
_NICE: Final = 10


class MoreTokens(Exception):
    """A text has more tokens than there is room for, and was not read to its end. at_least: how many it has."""

    def __init__(self, at_least: int) -> None:
        super().__init__(at_least)
        self.at_least = at_least


class TextTokenizer:
    """Tokenises the texts of requests. One thread."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        self._cuts: TextCuts | None = None
        self._aside = ThreadPoolExecutor(1, "long text", initializer=_yield_to_others)
        self._spent = 0  # bytes since the last turn of others

    def tokens(
        self,
        text: str,
        *,
        parse_special: bool,
        add_special: bool = False,
        room: int | None = None,
        param: str = "prompt",
    ) -> Work[list[int]]:
        """Ids exactly as `Vocab.tokenize` gives them. room: a long text with more tokens is not read to its end.

        param: field name in errors. Raises MoreTokens for a text that was not read to its end, InvalidRequest for a
        stretch that is too long.
        """
        data = text.encode("utf-8")
        yield from self._wait_for_turn(len(data))
        if len(data) <= PART_BYTES:
            return self.vocab.tokenize(text, add_special=add_special, parse_special=parse_special)
        cuts = yield from self._get_cuts()
        if room is not None and (least := cuts.least_tokens(data)) > room:
            raise MoreTokens(least)
        ids, is_all = yield from self._read(cuts, data, parse_special, room, param)
        if not is_all:
            raise MoreTokens(len(ids))
        before, after = _added(self.vocab) if add_special else ([], [])
        return [*before, *ids, *after]

    def ids(
        self,
        piece: str | Sequence[int],
        *,
        parse_special: bool,
        param: str,
        add_special: bool = False,
        room: int | None = None,
    ) -> Work[list[int]]:
        """Ids of a text, as `tokens`, or these ids. Raises InvalidRequest for one outside the vocabulary too."""
        if isinstance(piece, str):
            return (
                yield from self.tokens(
                    piece, parse_special=parse_special, add_special=add_special, room=room, param=param
                )
            )
        self.check_ids(piece, param)
        return list(piece)

    def check_ids(self, ids: Iterable[int], param: str) -> None:
        """Raises InvalidRequest for an id outside the vocabulary."""
        n_tokens = self.vocab.n_tokens
        for token in ids:
            if not 0 <= token < n_tokens:
                raise InvalidRequest(
                    f"{param}: token id {token} is outside the vocabulary (0 to {n_tokens - 1})", param=param
                )

    def first(self, text: str, count: int, *, param: str) -> Work[list[int] | None]:
        """The first tokens of a text, special tokens not parsed; None if it has no more than `count`."""
        data = text.encode("utf-8")
        yield from self._wait_for_turn(len(data))
        if len(data) <= PART_BYTES:
            ids = self.vocab.tokenize(text, add_special=False, parse_special=False)
        else:
            cuts = yield from self._get_cuts()
            ids, _ = yield from self._read(cuts, data, False, count, param)
        return ids[:count] if len(ids) > count else None

    def _wait_for_turn(self, size: int) -> Work[None]:
        """Many small texts take as long as a large one."""
        self._spent += size
        if self._spent > PART_BYTES:
            self._spent = 0
            yield None

    def _get_cuts(self) -> Work[TextCuts]:
        if self._cuts is None:
            self._cuts = yield from self.aside(lambda: TextCuts(self.vocab))
        return self._cuts

    def _read(
        self, cuts: TextCuts, data: bytes, parse_special: bool, room: int | None, param: str
    ) -> Work[tuple[list[int], bool]]:
        """The tokens of the first parts, until they are more than `room`, and whether they are all."""
        found: list[int] = []
        start = 0
        while start < len(data):
            if room is not None and len(found) > room:
                return found, False
            end, following = yield from self._part(cuts, data, start, parse_special, param)
            tokenize = partial(
                self.vocab.tokenize_bytes, data[start:end], add_special=False, parse_special=parse_special
            )
            if end - start <= _ASIDE_BYTES:
                found += tokenize()
                yield None
            else:
                found += yield from self.aside(tokenize)
            start = following
        return found, True

    def aside(self, call: Callable[[], T]) -> Work[T]:
        """The result of a call that takes long and needs no other state: another thread runs it."""
        future = self._aside.submit(call)
        yield future
        return future.result()

    @staticmethod
    def _part(
        cuts: TextCuts, data: bytes, start: int, parse_special: bool, param: str
    ) -> Work[tuple[int, int]]:
        """Where the next part ends, and where the one after it begins."""
        low = start
        while low + PART_BYTES < len(data):
            cut = cuts.last(data, low, low + PART_BYTES, parse_special=parse_special)
            if cut is not None:
                return cut
            low += PART_BYTES
            yield None
            if low - start > MAX_STRETCH:
                raise InvalidRequest(
                    f"{param}: a text has {MAX_STRETCH} bytes without an end of a word that this model's vocabulary"
                    " knows: it cannot be tokenised",
                    param=param,
                )
        return len(data), len(data)


def finish(work: Work[T]) -> T:
    """Do all of it at once. Blocks."""
    while True:
        try:
            future = next(work)
        except StopIteration as end:
            return end.value
        if future is not None:
            future.exception()


def _added(vocab: Vocab) -> tuple[list[int], list[int]]:
    """The tokens that the vocabulary writes before and after a text."""
    alone = vocab.tokenize("a", add_special=False, parse_special=False)
    whole = vocab.tokenize("a", add_special=True, parse_special=False)
    start = next(i for i in range(len(whole)) if whole[i : i + len(alone)] == alone)
    return whole[:start], whole[start + len(alone) :]


def _yield_to_others() -> None:
    """Give this thread a lower priority, where threads have their own."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        with contextlib.suppress(OSError):  # an initialiser that fails breaks its pool for ever
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
