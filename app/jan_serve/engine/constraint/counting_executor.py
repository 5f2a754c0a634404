"""Constrains a sequence to a grammar and to bounds of long texts: at its bound, a text can only end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from jan_serve.core.text_bounds import TextBounds
from jan_serve.engine.constraint.grammar_executor import Floats
from jan_serve.engine.constraint.ruled_executor import RuledExecutor
from jan_serve.engine.constraint.text_counter import State, TextCounter
from jan_serve.engine.constraint.token_search import TokenSearch
from jan_serve.engine.llama.vocab import Vocab


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


class CountingExecutor(RuledExecutor[State]):
    """A GrammarExecutor whose texts also obey bounds."""

    _broken = "a text that is longer than its bound"

    def __init__(
        self, tokenizer: Any, lark: str, vocab: Vocab, bounds: TextBounds, tokens: Callable[[], TokenSizes]
    ) -> None:
        super().__init__(tokenizer, lark, vocab)
        self._counter = TextCounter(bounds)
        self._tokens = tokens
        self._state = State()

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

    def _written(self, token: int) -> State | None:
        return self._counter.written(self._state, self._tokens().pieces[token])
