"""Which tokens of a vocabulary some text of a grammar goes on with: the grammar's tree, followed along a trie. It
knows neither llguidance nor Lark: the recognizer's states are taken byte by byte, and what a state allows is found for
all tokens at once. Names and items that must differ are not part of it; `Continuations` writes whole texts, for others
to judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import numpy as np
import numpy.typing as npt

from jan_serve.constraint.ast import Grammar
from jan_serve.constraint.layout import LAYOUTS, Layout
from tests.unit.constraint.recognizer import Recognizer, States
from tests.unit.constraint.sampling import Sampler

Bools = npt.NDArray[np.bool_]

DEAD = 0
START = 1
_UNKNOWN = -1
_DEEP = 3
"""Rules that are written at random before the shortest way is taken."""
_SURROGATES = range(0xD800, 0xE000)


class Trie:
    """The pieces of a vocabulary, those of control tokens left out: nodes by their depth."""

    def __init__(self, pieces: Sequence[bytes], controls: Iterable[int]) -> None:
        left_out = set(controls)
        children: dict[tuple[int, int], int] = {}
        depths = [0]
        self.node_of = np.zeros(len(pieces), np.int64)
        for token, piece in enumerate(pieces):
            node = 0
            for byte in b"" if token in left_out else piece:
                child = children.get((node, byte))
                if child is None:
                    child = children[node, byte] = len(depths)
                    depths.append(depths[node] + 1)
                node = child
            self.node_of[token] = node
        self.is_token = self.node_of > 0
        order = np.fromiter(children.values(), np.int64, len(children))
        edges = np.array(list(children), np.int64).reshape(-1, 2)
        depth_of = np.array(depths)[order]
        self.levels = [
            (order[at], edges[at, 0], edges[at, 1])
            for at in (np.flatnonzero(depth_of == depth) for depth in range(1, max(depths) + 1))
        ]
        self.size = len(depths)


class ByteStates:
    """A grammar as an automaton over bytes, made as far as it is asked for. DEAD has no completion; any other state has
    one, as the grammar is pruned."""

    def __init__(self, grammar: Grammar, layouts: tuple[Layout, ...] = LAYOUTS) -> None:
        self.recognizer = Recognizer(grammar, layouts)
        self._numbers: dict[tuple[States, bytes], int] = {}
        self._states: list[tuple[States, bytes]] = []
        self._table = np.full((64, 256), _UNKNOWN, np.int32)
        self._targets: dict[States, list[tuple[int, int, States]]] = {}
        self._allowed: dict[int, Bools] = {}
        self._number(frozenset(), b"")
        self._table[DEAD] = DEAD
        self._number(self.recognizer.start(), b"")

    def after(self, state: int, data: bytes) -> int:
        for byte in data:
            state = self._step(state, byte)
        return state

    def is_end(self, state: int) -> bool:
        states, begun = self._states[state]
        return not begun and -1 in states

    def content(self, state: int) -> tuple[States, bytes]:
        """The recognizer's states, and the bytes of a character that has begun."""
        return self._states[state]

    def allowed(self, state: int, trie: Trie) -> Bools:
        """The tokens that some text goes on with."""
        known = self._allowed.get(state)
        if known is None:
            known = self._allowed[state] = self._walked(state, trie)
        return known

    def _walked(self, state: int, trie: Trie) -> Bools:
        at = np.zeros(trie.size, np.int32)
        at[0] = state
        for nodes, parents, bytes_ in trie.levels:
            before = at[parents]
            live = before > DEAD
            if not live.any():
                break
            nodes, before, bytes_ = nodes[live], before[live], bytes_[live]
            found = self._table[before, bytes_]
            unknown = found == _UNKNOWN
            if unknown.any():
                for key in np.unique(before[unknown].astype(np.int64) << 8 | bytes_[unknown]):
                    self._step(int(key) >> 8, int(key) & 0xFF)
                found = self._table[before, bytes_]
            at[nodes] = found
        return (at[trie.node_of] > DEAD) & trie.is_token

    def _number(self, states: States, begun: bytes) -> int:
        number = self._numbers.get((states, begun))
        if number is None:
            number = self._numbers[states, begun] = len(self._states)
            self._states.append((states, begun))
            if number == len(self._table):
                self._table = np.vstack([self._table, np.full_like(self._table, _UNKNOWN)])
        return number

    def _step(self, state: int, byte: int) -> int:
        known = int(self._table[state, byte])
        if known == _UNKNOWN:
            states, begun = self._states[state]
            known = self._table[state, byte] = self._stepped(states, begun + bytes((byte,)))
        return known

    def _stepped(self, states: States, data: bytes) -> int:
        codes = code_points(data)
        if codes is None:
            return DEAD
        first, last, is_whole = codes
        reached = [(low, after) for low, high, after in self.targets(states) if low <= last and first <= high]
        if not reached:
            return DEAD
        return self._number(reached[0][1], b"") if is_whole else self._number(states, data)

    def targets(self, states: States) -> list[tuple[int, int, States]]:
        """Ranges of code points that lead on, and what each leads to."""
        known = self._targets.get(states)
        if known is None:
            found = (
                (*part, self.recognizer.step(states, chr(part[0])))
                for part in self.recognizer.letters(states)
            )
            known = self._targets[states] = [each for each in found if each[2]]
        return known


def code_points(data: bytes) -> tuple[int, int, bool] | None:
    """The range of the characters whose UTF-8 begins with these bytes, at most one of them; whether it is whole. None
    where no character does."""
    lead = data[0]
    length = 1 if lead < 0x80 else 2 if 0xC2 <= lead < 0xE0 else 3 if 0xE0 <= lead < 0xF0 else 4
    if lead >= 0x80 and not 0xC2 <= lead < 0xF5:
        return None
    value = lead if length == 1 else lead & 0x7F >> length
    for byte in data[1:]:
        if byte & 0xC0 != 0x80:
            return None
        value = value << 6 | byte & 0x3F
    left = 6 * (length - len(data))
    first = max(value << left, (0, 0, 0x80, 0x800, 0x10000)[length])
    last = min((value + 1 << left) - 1, 0x10FFFF)
    if first in _SURROGATES:
        first = _SURROGATES.stop
    if last in _SURROGATES:
        last = _SURROGATES.start - 1
    return None if first > last else (first, last, left == 0)


class Continuations:
    """Whole texts of a grammar that begin as asked for."""

    def __init__(self, grammar: Grammar, states: ByteStates, layouts: tuple[Layout, ...] = LAYOUTS) -> None:
        self._states = states
        self._sampler = Sampler(grammar, depth=_DEEP, layouts=layouts)

    def text(self, state: int, random: Random, *, shortest: bool) -> str:
        """What follows from a live state on: a whole text, without the bytes of a character that has begun."""
        states, begun = self._states.content(state)
        written = ""
        if begun:
            codes = code_points(begun)
            assert codes is not None
            parts = [
                part for part in self._states.targets(states) if part[0] <= codes[1] and codes[0] <= part[1]
            ]
            low, _, states = random.choice(parts)
            written = chr(max(low, codes[0]))
        state = random.choice(sorted(states))
        return written + self._sampler.rest(self._states.recognizer, state, random, shortest=shortest)
