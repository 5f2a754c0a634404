"""Constrains a sequence to a grammar whose names and items must differ: none is begun that can only repeat another."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from jan_serve.core.uniqueness import Uniqueness
from jan_serve.engine.constraint.grammar_executor import Floats, RuledExecutor
from jan_serve.engine.constraint.token_tables import TokenSearch
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.text.uniqueness.check import ENDS, Mode, State, UniquenessCheck

Ints = npt.NDArray[np.intp]

_STRING: Final = rb'"(?:[^"\\]|\\.)*"'
_WHOLE: Final = rb"(?:" + _STRING + rb"|-?[0-9][0-9.]*(?=[,\]\s])|true|false|null)"
_BEGUN: Final = rb'["\-0-9tfn]'


def _anywhere_or_after_quote(pattern: bytes, gap: bytes) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """The pattern, and where it may follow a quote."""
    return re.compile(pattern), re.compile(b'"' + gap + pattern, re.DOTALL)


_NAME: Final = re.compile(rb"[,{]\s*" + _STRING)
_NAME_BEGUN: Final = re.compile(rb'[,{]\s*"(?:.|\n)')
_FIRST_NAME: Final = re.compile(rb"^\s*" + _STRING)
_FIRST_NAME_BEGUN: Final = re.compile(rb'^\s*"(?:.|\n)')
_NEXT_WHOLE: Final = _anywhere_or_after_quote(rb",\s*" + _WHOLE, rb"\s*")
_NEXT_BEGUN: Final = _anywhere_or_after_quote(rb",\s*" + _BEGUN, rb"\s*")
# A bracket that ends an item, or the line before it.
_ENDED: Final = _anywhere_or_after_quote(rb"[\]}\n]", b".*")
_TWO_CONTAINERS: Final = re.compile(rb"[\]}]\s*,.*[\]}]", re.DOTALL)
_PART_BEGUN: Final = _anywhere_or_after_quote(rb"[:,\[]\s*" + _BEGUN, b".*")
_TWO_WHOLE: Final = re.compile(rb"\[\s*" + _WHOLE + rb"\s*,\s*" + _WHOLE)
_ENDS: Final = frozenset(bytes((byte,)) for byte in ENDS)


class Tokens:
    """The tokens of one vocabulary that hold parts of several names or items, each kind found when it is first asked
    for. `after_quote`: of those, the ones that can end a string before."""

    def __init__(self, pieces: Sequence[bytes], search: Callable[[], TokenSearch]) -> None:
        self.pieces = pieces
        self._search = search
        self._found: dict[re.Pattern[bytes], Ints] = {}

    @property
    def search(self) -> TokenSearch:
        return self._search()

    def matching(self, pattern: re.Pattern[bytes], marks: Sequence[bytes]) -> Ints:
        """Tokens in which the pattern is found, all of which have one of the marks."""
        found = self._found.get(pattern)
        if found is None:
            tokens = sorted({token for mark in marks for token in self.search.containing(mark)})
            own = [token for token in tokens if pattern.search(self.pieces[token])]
            found = self._found[pattern] = np.array(own, np.intp)
        return found

    @cached_property
    def ending(self) -> Ints:
        """Tokens that begin with what follows a scalar in an array."""
        return np.concatenate([np.array(self.search.beginning_with(end), np.intp) for end in _ENDS])


class UniquenessExecutor(RuledExecutor[State]):
    """A GrammarExecutor whose texts also obey a Uniqueness."""

    _broken = "a name or an item that is there already"

    def __init__(
        self, tokenizer: Any, lark: str, vocab: Vocab, uniqueness: Uniqueness, tokens: Callable[[], Tokens]
    ) -> None:
        super().__init__(tokenizer, lark, vocab)
        self._check = UniquenessCheck(uniqueness)
        self._state = self._check.start
        self._tokens = tokens

    def allows(self, token: int) -> bool:
        if not super().allows(token):
            return False
        rest = self._state.run.rest()
        if rest is None or self._vocab.is_eog(token) or not self._tokens().pieces[token].startswith(rest):
            return True
        return self._ended_run(self._masked(np.zeros(self._vocab.n_tokens, np.float32)), rest) is None

    def mask(self, logits: Floats) -> Floats:
        out = self._masked(logits)
        rest = self._state.run.rest()
        ended = None if rest is None else self._ended_run(out, rest)
        return out if ended is None else ended

    def _masked(self, logits: Floats) -> Floats:
        """See `mask`, before a run of one escape is ended."""
        out = super().mask(logits)
        if self._check.names_repeat:
            self._reject_names(out)
        if self._check.has_items:
            self._reject_items(out)
        return out

    def _ended_run(self, out: Floats, rest: bytes) -> Floats | None:
        """Without what would continue a run of one escape; None if only that may follow."""
        search = self._tokens().search
        ended = out.copy()
        ended[search.beginning_with(rest)] = -np.inf
        begun = search.beginning_of(rest)
        return ended if np.count_nonzero(ended > -np.inf) > np.count_nonzero(ended[begun] > -np.inf) else None

    def _reject_names(self, out: Floats) -> None:
        few = self._check.has_few_names
        self._try_matching(out, _NAME_BEGUN if few else _NAME, b'"')
        if self._state.mode is Mode.KEY:
            self._try_matching(out, _FIRST_NAME_BEGUN if few else _FIRST_NAME, b'"')
        for rest in self._check.rests_of_name(self._state):
            search = self._tokens().search
            out[search.beginning_with(rest)] = -np.inf
            if few:
                self._try(out, np.array(search.beginning_of(rest), np.intp))

    def _reject_items(self, out: Floats) -> None:
        tokens = self._tokens()
        compared = self._check.compared(self._state)
        in_string = self._state.mode in (Mode.STRING, Mode.NAME)
        if self._check.may_repeat(self._state):
            self._try_matching(out, _ENDED[in_string], b"]", b"}", b"\n")
        elif self._check.has_containers:
            self._try_matching(out, _TWO_CONTAINERS, b"]", b"}")
        if self._check.has_last:
            self._try_matching(out, _PART_BEGUN[in_string], b":", b",", b"[")
        if compared is None:
            self._try_matching(out, _TWO_WHOLE, b",")
            return
        items = compared.texts
        self._try_matching(out, (_NEXT_WHOLE if items.endless else _NEXT_BEGUN)[in_string], b",")
        begun: dict[int, None] = {}
        for rest, is_string in self._check.rests(self._state):
            going_on = tokens.search.beginning_with(rest) if rest else []
            if is_string:
                out[going_on] = -np.inf
            elif rest:
                out[[t for t in going_on if tokens.pieces[t][len(rest) :][:1] in _ENDS]] = -np.inf
            else:
                out[tokens.ending] = -np.inf
            if not items.endless:
                begun.update(dict.fromkeys(tokens.search.beginning_of(rest)))
        self._try(out, np.fromiter(begun, np.intp, len(begun)))

    def _try_matching(self, out: Floats, pattern: re.Pattern[bytes], *marks: bytes) -> None:
        self._try(out, self._tokens().matching(pattern, marks))

    def _try(self, out: Floats, tokens: Ints) -> None:
        """Reject those of the tokens that repeat a name or item."""
        for token in tokens[out[tokens] > -np.inf]:
            if self._written(int(token)) is None:
                out[token] = -np.inf

    def _written(self, token: int) -> State | None:
        return self._check.written(self._state, self._tokens().pieces[token])
