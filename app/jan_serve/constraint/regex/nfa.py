"""Compiles a regex AST without lookaheads to a DFA: Thompson's construction, then subsets.

`^`, `$`, `\\b` and `\\B` are edges that may be crossed only between certain characters, so a DFA state also
remembers what kind of character came last.
"""

from __future__ import annotations

from jan_serve.constraint import charset
from jan_serve.constraint.automata.dfa import Dfa, minimize, partition
from jan_serve.constraint.charset import CharSet
from jan_serve.constraint.limits import MAX_DFA_STATES, MAX_NFA_STATES, spend
from jan_serve.constraint.regex.ast import Alternation, Assertion, Automaton, Chars, Concat, Look, Loop, Regex
from jan_serve.constraint.regex.classes import WORD
from jan_serve.errors import GrammarTooComplex

# The kinds of neighbours that a position between two characters has.
EDGE, WORD_CHAR, OTHER_CHAR = 0, 1, 2


def compile_dfa(regex: Regex) -> Dfa:
    """The minimal DFA of the strings that `regex` matches as a whole.

    Raises GrammarTooComplex above the state limits. `regex` holds no `Look`.
    """
    nfa = _Nfa()
    end = nfa.build(regex, nfa.start)
    nfa.accept = end
    return minimize(_plain_subsets(nfa) if not nfa.guards else _guarded_subsets(nfa))


class _Nfa:
    """`moves[s]` is a (character set index, target) or None; `epsilon[s]` are free edges; `guards` assertions."""

    def __init__(self) -> None:
        self.moves: list[list[tuple[int, int]]] = [[]]
        self.epsilon: list[list[int]] = [[]]
        self.guards: dict[int, list[tuple[str, int]]] = {}
        self.sets: dict[CharSet, int] = {}
        self.free_loops: list[int] = []
        self.start = 0
        self.accept = 0

    def state(self) -> int:
        if len(self.moves) >= MAX_NFA_STATES:
            raise GrammarTooComplex("a regular expression repeats too much to be compiled")
        self.moves.append([])
        self.epsilon.append([])
        return len(self.moves) - 1

    def build(self, regex: Regex, start: int) -> int:
        """Add `regex` from `start`; returns the state after it."""
        if isinstance(regex, Chars):
            end = self.state()
            self.moves[start].append((self.sets.setdefault(regex.chars, len(self.sets)), end))
            return end
        if isinstance(regex, Concat):
            for item in regex.items:
                start = self.build(item, start)
            return start
        if isinstance(regex, Alternation):
            end = self.state()
            for item in regex.items:
                branch = self.state()
                self.epsilon[start].append(branch)
                self.epsilon[self.build(item, branch)].append(end)
            return end
        if isinstance(regex, Loop):
            return self._loop(regex, start)
        if isinstance(regex, Assertion):
            end = self.state()
            self.guards.setdefault(start, []).append((regex.kind, end))
            return end
        if isinstance(regex, Automaton):
            return self._embed(regex.dfa, start)
        assert isinstance(regex, Look)
        raise AssertionError("lookaheads are reduced before an automaton is built")

    def _loop(self, loop: Loop, start: int) -> int:
        for _ in range(loop.low):
            start = self.build(loop.item, start)
        if loop.high is None:
            hub = self.state()
            self.epsilon[start].append(hub)
            end = self.build(loop.item, hub)
            self.epsilon[end].append(hub)
            if loop.item == Chars(charset.ANY):
                self.free_loops.append(end)
            return hub
        end = self.state()
        self.epsilon[start].append(end)
        for _ in range(loop.high - loop.low):
            start = self.build(loop.item, start)
            self.epsilon[start].append(end)
        return end

    def _embed(self, dfa: Dfa, start: int) -> int:
        end = self.state()
        live = dfa.live_states()
        states = {number: self.state() for number in sorted(live)}
        indexes = [self.sets.setdefault(chars, len(self.sets)) for chars in dfa.symbol_sets()]
        for number, state in states.items():
            for symbol, target in enumerate(dfa.table[number]):
                if target in live:
                    self.moves[state].append((indexes[symbol], states[target]))
            if number in dfa.accepting:
                self.epsilon[state].append(end)
        if 0 in live:
            self.epsilon[start].append(states[0])
        return end

    def universal_states(self) -> set[int]:
        """States from which everything is accepted: no other state matters beside one of them."""
        return {s for s in self.free_loops if self.accept in _guarded_closure(self, frozenset({s}), -1, -1)}

    def symbol_moves(self, members: list[list[int]]) -> list[list[tuple[int, int]]]:
        """Per state, (symbol, target) pairs."""
        spend(sum(len(members[index]) for own in self.moves for index, _ in own) // 8)
        return [
            [(symbol, target) for index, target in own for symbol in members[index]] for own in self.moves
        ]


def _closures(nfa: _Nfa) -> list[int]:
    """Per state, the bit set of states with moves (or the accept state) that free edges reach."""
    size = 1 + len(nfa.moves) // 2048
    result = [0] * len(nfa.moves)
    wanted = {target for own in nfa.moves for _, target in own} | {nfa.start}
    for origin in wanted:
        seen = {origin}
        todo = [origin]
        mask = 0
        while todo:
            state = todo.pop()
            if nfa.moves[state] or state == nfa.accept:
                mask |= 1 << state
            for target in nfa.epsilon[state]:
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        spend(1 + len(seen) * size // 4)
        result[origin] = mask
    return result


def _plain_subsets(nfa: _Nfa) -> Dfa:
    cuts, symbols, members = partition(list(nfa.sets))
    width = max(symbols) + 1
    closures = _closures(nfa)
    moves = [[(symbol, closures[target]) for symbol, target in own] for own in nfa.symbol_moves(members)]
    accept_bit = 1 << nfa.accept
    universal = [(closures[s], closures[s]) for s in nfa.universal_states()][:1]
    index = {closures[nfa.start]: 0}
    order = [closures[nfa.start]]
    rows: list[tuple[int, ...]] = []
    size = 1 + len(nfa.moves) // 2048
    for mask in order:
        spend(1 + mask.bit_count() * size // 4 + width // 8)
        successors = [0] * width
        rest = mask
        while rest:
            bit = rest & -rest
            rest ^= bit
            own = moves[bit.bit_length() - 1]
            spend(len(own) // 8)
            for symbol, target in own:
                successors[symbol] |= target
        row: list[int] = []
        for target in successors:
            for everything, bits in universal:
                if target & bits == bits:
                    target = everything
            state = index.get(target)
            if state is None:
                state = index[target] = len(order)
                order.append(target)
                if state > MAX_DFA_STATES:
                    raise GrammarTooComplex("a regular expression needs too many states")
            row.append(state)
        rows.append(tuple(row))
    accepting = frozenset(i for i, mask in enumerate(order) if mask & accept_bit)
    return Dfa(cuts, symbols, tuple(rows), accepting)


def _holds(kind: str, before: int, after: int) -> bool:
    if before < 0:
        return False
    if kind == "^":
        return before == EDGE
    if kind == "$":
        return after == EDGE
    boundary = (before == WORD_CHAR) != (after == WORD_CHAR)
    return boundary == (kind == "b")


def _guarded_closure(nfa: _Nfa, core: frozenset[int], before: int, after: int) -> set[int]:
    seen = set(core)
    todo = list(core)
    while todo:
        state = todo.pop()
        targets = list(nfa.epsilon[state])
        targets += [t for kind, t in nfa.guards.get(state, ()) if _holds(kind, before, after)]
        for target in targets:
            if target not in seen:
                seen.add(target)
                todo.append(target)
    spend(1 + len(seen) // 4)
    return seen


def _guarded_subsets(nfa: _Nfa) -> Dfa:
    words = any(kind in "bB" for own in nfa.guards.values() for kind, _ in own)
    sets = list(nfa.sets)
    cuts, symbols, members = partition([*sets, WORD] if words else sets)
    word_symbols = set(members[len(sets)]) if words else set[int]()
    width = max(symbols) + 1
    moves = nfa.symbol_moves(members)
    first: tuple[frozenset[int], int] = (frozenset({nfa.start}), EDGE)
    index: dict[tuple[frozenset[int], int], int] = {first: 0}
    order: list[tuple[frozenset[int], int]] = [first]
    rows: list[tuple[int, ...]] = []
    accepting: set[int] = set()
    universal = nfa.universal_states()
    for number, (core, before) in enumerate(order):
        if nfa.accept in _guarded_closure(nfa, core, before, EDGE):
            accepting.add(number)
        successors: list[set[int]] = [set() for _ in range(width)]
        for after in (WORD_CHAR, OTHER_CHAR) if words else (OTHER_CHAR,):
            for state in _guarded_closure(nfa, core, before, after):
                for symbol, target in moves[state]:
                    if not words or (symbol in word_symbols) == (after == WORD_CHAR):
                        successors[symbol].add(target)
        spend(width // 4 + sum(len(targets) for targets in successors) // 8)
        row: list[int] = []
        for symbol, targets in enumerate(successors):
            kind = WORD_CHAR if symbol in word_symbols else OTHER_CHAR
            if done := targets & universal:
                targets, kind = {min(done)}, OTHER_CHAR
            key = (frozenset(targets), kind)
            state = index.get(key)
            if state is None:
                state = index[key] = len(order)
                order.append(key)
                if state > MAX_DFA_STATES:
                    raise GrammarTooComplex("a regular expression needs too many states")
            row.append(state)
        rows.append(tuple(row))
    return Dfa(cuts, symbols, tuple(rows), frozenset(accepting))
