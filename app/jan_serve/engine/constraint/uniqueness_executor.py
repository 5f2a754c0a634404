"""Constrains a sequence to a grammar whose names and items must differ: none is begun that can only repeat another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from jan_serve.core.constraint import Uniqueness
from jan_serve.engine.constraint.grammar_executor import Floats, RuledExecutor
from jan_serve.engine.constraint.token_tables import TokenSearch
from jan_serve.engine.llama.vocab import Vocab
from jan_serve.text.uniqueness.check import ENDS, Mode, State, UniquenessCheck

Ints = npt.NDArray[np.intp]

_STRING: Final = rb'"(?:[^"\\]|\\.)*"'
_WHOLE: Final = rb"(?:" + _STRING + rb"|-?[0-9][0-9.]*(?=[,\]\s])|true|false|null)"
_NEXT_WHOLE: Final = rb",\s*" + _WHOLE
_NEXT_BEGUN: Final = rb',\s*["\-0-9tfn]'
# A bracket that ends an item, or the line before it.
_ENDED: Final = (b"]", b"}", b"\n")
_ENDED_AFTER_QUOTE: Final = re.compile(rb'".*[\]}\n]', re.DOTALL)
_TWO_CONTAINERS: Final = re.compile(rb"[\]}]\s*,.*[\]}]", re.DOTALL)
_PART_BEGUN: Final = re.compile(rb'[:,\[]\s*["\-0-9tfn]')
_PART_AFTER_QUOTE: Final = re.compile(rb'".*[:,\[]\s*["\-0-9tfn]', re.DOTALL)
_TWO_WHOLE: Final = re.compile(rb"\[\s*" + _WHOLE + rb"\s*,\s*" + _WHOLE)


class Crossing:
    """Tokens that go from one item to the next. after_quote: those that can end a string before."""

    def __init__(self, pieces: Sequence[bytes], tokens: Iterable[int], pattern: bytes) -> None:
        self.anywhere = _matching(pieces, tokens, re.compile(pattern))
        self.after_quote = _matching(pieces, self.anywhere.tolist(), re.compile(rb'"\s*' + pattern))


class ItemTokens:
    """The tokens of a vocabulary that hold parts of several items of an array. Built once: searches all tokens."""

    def __init__(self, pieces: Sequence[bytes], search: TokenSearch) -> None:
        self.pieces = pieces
        self.search = search
        with_comma = search.containing(b",")
        self.next_whole = Crossing(pieces, with_comma, _NEXT_WHOLE)
        self.next_begun = Crossing(pieces, with_comma, _NEXT_BEGUN)
        self.two_whole = _matching(pieces, with_comma, _TWO_WHOLE)
        ended = sorted({token for end in _ENDED for token in search.containing(end)})
        self.two_containers = _matching(pieces, ended, _TWO_CONTAINERS)
        before_parts = sorted({token for mark in (b":", b",", b"[") for token in search.containing(mark)})
        self.part_begun = _matching(pieces, before_parts, _PART_BEGUN)
        self.part_begun_after_quote = _matching(pieces, self.part_begun.tolist(), _PART_AFTER_QUOTE)
        self.ended = np.array(ended, np.intp)
        self.ended_after_quote = _matching(pieces, ended, _ENDED_AFTER_QUOTE)
        self.ending = np.concatenate([np.array(search.beginning_with(end), np.intp) for end in _ENDS])


class NameTokens:
    """The tokens of a vocabulary that hold a whole name, or begin one. Built once: searches all tokens."""

    def __init__(self, pieces: Sequence[bytes], search: TokenSearch) -> None:
        quoted = search.containing(b'"')
        self.next_whole = _matching(pieces, quoted, re.compile(rb"[,{]\s*" + _STRING))
        self.whole = _matching(pieces, quoted, re.compile(rb"^\s*" + _STRING))
        self.next_begun = _matching(pieces, quoted, re.compile(rb'[,{]\s*"(?:.|\n)'))
        self.begun = _matching(pieces, quoted, re.compile(rb'^\s*"(?:.|\n)'))


class Tokens:
    """What the comparison needs of the tokens of one vocabulary, made when it is first asked for."""

    def __init__(self, pieces: Sequence[bytes], search: Callable[[], TokenSearch]) -> None:
        self.pieces = pieces
        self._search = search

    @cached_property
    def names(self) -> NameTokens:
        return NameTokens(self.pieces, self.search)

    @cached_property
    def items(self) -> ItemTokens:
        return ItemTokens(self.pieces, self.search)

    @property
    def search(self) -> TokenSearch:
        return self._search()


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

    def copy(self) -> UniquenessExecutor:
        twin = super().copy()
        assert isinstance(twin, UniquenessExecutor)
        twin._check, twin._state, twin._tokens = self._check, self._state, self._tokens
        return twin

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
        names, few = self._tokens().names, self._check.has_few_names
        self._try(out, names.next_begun if few else names.next_whole)
        if self._state.mode is Mode.KEY:
            self._try(out, names.begun if few else names.whole)
        for rest in self._check.rests_of_name(self._state):
            search = self._tokens().search
            out[search.beginning_with(rest)] = -np.inf
            if few:
                self._try(out, np.array(search.beginning_of(rest), np.intp))

    def _reject_items(self, out: Floats) -> None:
        tokens = self._tokens().items
        compared = self._check.compared(self._state)
        in_string = self._state.mode in (Mode.STRING, Mode.NAME)
        if self._check.may_repeat(self._state):
            self._try(out, tokens.ended_after_quote if in_string else tokens.ended)
        elif self._check.has_containers:
            self._try(out, tokens.two_containers)
        if self._check.has_last:
            self._try(out, tokens.part_begun_after_quote if in_string else tokens.part_begun)
        if compared is None:
            self._try(out, tokens.two_whole)
            return
        items = compared.texts
        crossing = tokens.next_whole if items.endless else tokens.next_begun
        self._try(out, crossing.after_quote if in_string else crossing.anywhere)
        begun: dict[int, None] = {}
        for rest, is_string in self._check.rests(self._state):
            if is_string:
                out[tokens.search.beginning_with(rest)] = -np.inf
            elif rest:
                ending = [
                    t
                    for t in tokens.search.beginning_with(rest)
                    if tokens.pieces[t][len(rest) :][:1] in _ENDS
                ]
                out[ending] = -np.inf
            else:
                out[tokens.ending] = -np.inf
            if not items.endless:
                begun.update(dict.fromkeys(tokens.search.beginning_of(rest)))
        self._try(out, np.fromiter(begun, np.intp, len(begun)))

    def _try(self, out: Floats, tokens: Ints) -> None:
        """Reject those of the tokens that repeat a name or item."""
        for token in tokens[out[tokens] > -np.inf]:
            if self._written(int(token)) is None:
                out[token] = -np.inf

    def _written(self, token: int) -> State | None:
        return self._check.written(self._state, self._tokens().pieces[token])


_ENDS: Final = frozenset(bytes((byte,)) for byte in ENDS)


def _matching(pieces: Sequence[bytes], tokens: Iterable[int], pattern: re.Pattern[bytes]) -> Ints:
    return np.array([token for token in tokens if pattern.search(pieces[token])], np.intp)
