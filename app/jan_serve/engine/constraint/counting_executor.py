"""A CountingExecutor constrains a sequence to a grammar and to bounds of long texts:

at its bound, a text can only end.

TextCounter counts the characters of the value of a call that is being written. States are immutable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from jan_serve.core.constraint import TextBounds
from jan_serve.engine.constraint.grammar_executor import Floats, RuledExecutor
from jan_serve.engine.constraint.token_tables import TokenSearch
from jan_serve.engine.llama.vocab import Vocab

_CONTINUED: Final = bytes(range(0x80, 0xC0))
"""Bytes of a character after its first one."""
_LONGEST_MARK: Final = 4_096
"""Bytes of a name or key with all around it."""


class CountState(NamedTuple):
    """tool: the one that is called, if it has bounds. most: characters of the open value; None where none is open or it
    has no bound. written: those that are there. text: what may be the beginning of a mark, which `written` does not
    have. is_first: whether `text` is all so far.
    """

    tool: str | None = None
    is_value: bool = False
    most: int | None = None
    written: int = 0
    text: bytes = b""
    is_first: bool = True


class TextCounter:
    """The rules of one grammar; all methods are functions of the states."""

    def __init__(self, bounds: TextBounds) -> None:
        marks = bounds.marks
        self._most = bounds.most
        self._stop, self._gap = marks.stop.encode(), marks.gap.encode()
        self._stops = list(dict.fromkeys([self._stop, self._gap + self._stop]))
        keys = dict.fromkeys(key for most in bounds.most.values() for key in most)
        key = f"(?:{_any_of(keys, 'key', marks.key)})"
        value = f"(?P<value>{marks.before_key}{key}{marks.after_key})"
        name = f"(?:{_any_of(dict.fromkeys(bounds.most), 'tool', '.+?')}){marks.after_name}"
        self._next = _compiled(f"{marks.before_name}{name}|{value}")
        before = rf"(?:{marks.before_name}|\A{bounds.start})" if bounds.start else marks.before_name
        self._first = _compiled(f"{before}{name}|{value}")

    def written(self, state: CountState, data: bytes) -> CountState | None:
        """The state after more bytes, which the grammar allows; None if a value is longer than it may be."""
        text = state.text + data
        while True:
            if state.is_value:
                end = text.find(self._stop)
                inside = (
                    text[:end].removesuffix(self._gap) if end >= 0 else text[: len(text) - self._begun(text)]
                )
                count = state.written + characters(inside)
                if state.most is not None and count > state.most:
                    return None
                if end < 0:
                    return state._replace(written=count, text=text[len(inside) :])
                state = CountState(state.tool, is_first=False)
                text = text[end + len(self._stop) :]
            mark = (self._first if state.is_first else self._next).search(text)
            if mark is None:
                is_whole = state.is_first and len(text) <= _LONGEST_MARK
                return state._replace(text=text[-_LONGEST_MARK:], is_first=is_whole)
            text = text[mark.end() :]
            if mark["value"] is None:
                state = CountState(_named(mark["tool"]), is_first=False)
            else:
                tool, key = state.tool, _named(mark["key"])
                most = None if tool is None or key is None else self._most[tool].get(key)
                state = CountState(state.tool, True, most, is_first=False)

    def room(self, state: CountState) -> int | None:
        """How many more characters the open value may have, if what may begin its stop is text; None: any number."""
        return None if state.most is None else state.most - state.written - characters(state.text)

    def stop_bytes(self, state: CountState) -> list[bytes]:
        """One of these is in each token that begins the stop or goes on with it."""
        at = len(state.text)
        return [byte for stop in self._stops for byte in (stop[:1], stop[at : at + 1]) if byte]

    def _begun(self, text: bytes) -> int:
        """How much of the stop the text ends with."""
        return max(
            size
            for stop in self._stops
            for size in range(len(stop))
            if size == 0 or text.endswith(stop[:size])
        )


def characters(text: bytes) -> int:
    """The characters that begin in a part of a text."""
    return len(text.translate(None, _CONTINUED))


def _named(found: bytes | None) -> str | None:
    return None if found is None else found.decode()


def _any_of(known: dict[str, None], group: str, other: str) -> str:
    words = "|".join(map(re.escape, known))
    return f"(?P<{group}>{words})|{other}"


def _compiled(pattern: str) -> re.Pattern[bytes]:
    return re.compile(pattern.encode(), re.DOTALL)


class TokenSizes:
    """The tokens of a vocabulary by their characters, as `text_counter.characters` counts them. Built once."""

    def __init__(self, pieces: Sequence[bytes], search: TokenSearch) -> None:
        self.pieces = pieces
        self._search = search
        begun = np.frombuffer(search.joined, np.uint8) & 0xC0 != 0x80
        self.characters = np.diff(np.concatenate([[0], np.cumsum(begun)])[search.ends], prepend=0)
        self.longest = int(self.characters.max())

    def with_any(self, texts: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """Which tokens have one of these texts in them."""
        found = np.zeros(len(self.pieces), np.bool_)
        for text in texts:
            found[self._search.containing(text)] = True
        return found


class CountingExecutor(RuledExecutor[CountState]):
    """A GrammarExecutor whose texts also obey bounds."""

    _broken = "a text that is longer than its bound"

    def __init__(
        self, tokenizer: Any, lark: str, vocab: Vocab, bounds: TextBounds, tokens: Callable[[], TokenSizes]
    ) -> None:
        super().__init__(tokenizer, lark, vocab)
        self._counter = TextCounter(bounds)
        self._tokens = tokens
        self._state = CountState()

    def copy(self) -> CountingExecutor:
        twin = super().copy()
        assert isinstance(twin, CountingExecutor)
        twin._counter, twin._state, twin._tokens = self._counter, self._state, self._tokens
        return twin

    def mask(self, logits: Floats) -> Floats:
        out = super().mask(logits)
        room = self._counter.room(self._state)
        if room is None or room >= (tokens := self._tokens()).longest:
            return out
        # One that is longer than the room begins the stop or goes on with it.
        longer = tokens.characters > room
        stops = tokens.with_any(self._counter.stop_bytes(self._state))
        out[longer & ~stops] = -np.inf
        for token in np.nonzero(longer & stops & (out > -np.inf))[0]:
            if self._written(int(token)) is None:
                out[token] = -np.inf
        return out

    def _written(self, token: int) -> CountState | None:
        return self._counter.written(self._state, self._tokens().pieces[token])
