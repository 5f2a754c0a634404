"""Compiles a regex AST to a DFA: Thompson's construction, then subsets. `^`, `$`, `\\b` and `\\B` are edges that may
be crossed only between certain characters, so a DFA state also remembers what kind of character came last. A lookahead
is an edge that leaves a condition on the rest of the text: its own automaton, which runs beside the state and has to
accept at the end."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from jan_serve.constraint import charset
from jan_serve.constraint.automata.dfa import Dfa, complement, explored, minimize, partition, reached
from jan_serve.constraint.charset import CharSet
from jan_serve.constraint.limits import MAX_DFA_STATES, MAX_NFA_STATES, spend
from jan_serve.constraint.regex import syntax
from jan_serve.errors import GrammarTooComplex

# The kinds of neighbours that a position between two characters has.
EDGE, WORD_CHAR, OTHER_CHAR = 0, 1, 2
_TOO_MANY: Final = "a regular expression needs too many states"


def compile_dfa(regex: syntax.Regex, before: int = EDGE) -> Dfa:
    """The minimal DFA of the strings that `regex` matches as a whole, after a character of the kind `before`. Raises
    GrammarTooComplex above the state limits."""
    nfa = _Nfa()
    nfa.accept = nfa.build(regex, nfa.start)
    return minimize(_guarded_subsets(nfa, before) if nfa.guards or nfa.looks else _plain_subsets(nfa))


class _Nfa:
    """`moves[s]` is a (character set index, target) or None; `epsilon[s]` are free edges; `guards` assertions; `looks`
    lookaheads."""

    def __init__(self) -> None:
        self.moves: list[list[tuple[int, int]]] = [[]]
        self.epsilon: list[list[int]] = [[]]
        self.guards: dict[int, list[tuple[str, int]]] = {}
        self.looks: dict[int, list[tuple[syntax.Look, int]]] = {}
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

    def build(self, regex: syntax.Regex, start: int) -> int:
        """Add `regex` from `start`; returns the state after it."""
        if isinstance(regex, syntax.Concat):
            for item in regex.items:
                start = self.build(item, start)
            return start
        if isinstance(regex, syntax.Loop):
            return self._loop(regex, start)
        end = self.state()
        match regex:
            case syntax.Chars(chars):
                self.moves[start].append((self.sets.setdefault(chars, len(self.sets)), end))
            case syntax.Alternation(items):
                for item in items:
                    branch = self.state()
                    self.epsilon[start].append(branch)
                    self.epsilon[self.build(item, branch)].append(end)
            case syntax.Assertion(kind):
                self.guards.setdefault(start, []).append((kind, end))
            case syntax.Automaton(dfa):
                self._embed(dfa, start, end)
            case syntax.Look():
                self.looks.setdefault(start, []).append((regex, end))
        return end

    def _loop(self, loop: syntax.Loop, start: int) -> int:
        for _ in range(loop.low):
            start = self.build(loop.item, start)
        if loop.high is None:
            hub = self.state()
            self.epsilon[start].append(hub)
            end = self.build(loop.item, hub)
            self.epsilon[end].append(hub)
            if loop.item == syntax.Chars(charset.ANY):
                self.free_loops.append(end)
            return hub
        end = self.state()
        self.epsilon[start].append(end)
        for _ in range(loop.high - loop.low):
            start = self.build(loop.item, start)
            self.epsilon[start].append(end)
        return end

    def _embed(self, dfa: Dfa, start: int, end: int) -> None:
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

    def universal_states(self) -> set[int]:
        """States from which everything is accepted: no other state matters beside one of them."""
        return {s for s in self.free_loops if self.accept in self.freely_reached(s)}

    def freely_reached(self, origin: int) -> set[int]:
        """The states that free edges lead to."""
        return reached([origin], self.epsilon.__getitem__)

    def symbol_moves(self, members: list[list[int]]) -> list[list[tuple[int, int]]]:
        """Per state, (symbol, target) pairs."""
        spend(sum(len(members[index]) for own in self.moves for index, _ in own) // 8)
        return [[(symbol, target) for at, target in own for symbol in members[at]] for own in self.moves]


def _closures(nfa: _Nfa) -> list[int]:
    """Per state, the bit set of states with moves (or the accept state) that free edges reach."""
    size = 1 + len(nfa.moves) // 2048
    result = [0] * len(nfa.moves)
    wanted = {target for own in nfa.moves for _, target in own} | {nfa.start}
    for origin in wanted:
        seen = nfa.freely_reached(origin)
        spend(1 + len(seen) * size // 4)
        result[origin] = sum(1 << state for state in seen if nfa.moves[state] or state == nfa.accept)
    return result


def _plain_subsets(nfa: _Nfa) -> Dfa:
    cuts, symbols, members = partition(list(nfa.sets))
    width = max(symbols) + 1
    closures = _closures(nfa)
    moves = [[(symbol, closures[target]) for symbol, target in own] for own in nfa.symbol_moves(members)]
    accept_bit = 1 << nfa.accept
    universal = [(closures[s], closures[s]) for s in nfa.universal_states()][:1]
    size = 1 + len(nfa.moves) // 2048

    def step(mask: int) -> tuple[list[int], bool]:
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
        for everything, bits in universal:
            successors = [everything if target & bits == bits else target for target in successors]
        return successors, mask & accept_bit != 0

    return explored(cuts, symbols, closures[nfa.start], step, MAX_DFA_STATES, _TOO_MANY)


def _holds(kind: str, before: int, after: int) -> bool:
    if kind == "^":
        return before == EDGE
    if kind == "$":
        return after == EDGE
    boundary = (before == WORD_CHAR) != (after == WORD_CHAR)
    return boundary == (kind == "b")


_Pending: TypeAlias = frozenset[tuple[int, int]]
"""Conditions on the rest of the text: numbers of automata, and their states."""
_NONE: Final[_Pending] = frozenset()
_Thread: TypeAlias = tuple[int, _Pending]


class _Condition(NamedTuple):
    """live: states from which the condition can still hold. done: those from which it always does."""

    dfa: Dfa
    live: frozenset[int]
    done: frozenset[int]


class _Conditions:
    """What the lookaheads of an automaton ask of the rest of a text, by the kind of character before it."""

    def __init__(self, nfa: _Nfa) -> None:
        self._all: list[_Condition] = []
        self._numbers: dict[tuple[syntax.Look, int], int] = {}
        self._symbols: list[list[int]] = []
        for look in dict.fromkeys(look for own in nfa.looks.values() for look, _ in own):
            kinds = (EDGE, WORD_CHAR, OTHER_CHAR)
            for kind in kinds if _asserts(look.item, "^bB") else kinds[:1]:
                self._numbers[look, kind] = len(self._all)
                self._all.append(_condition(look, kind))

    def mention_words(self) -> bool:
        return any(_asserts(look.item, "bB") for look, _ in self._numbers)

    def sets(self) -> list[CharSet]:
        """The character sets that they tell apart."""
        return [chars for condition in self._all for chars in condition.dfa.symbol_sets()]

    def read(self, members: list[list[int]], width: int) -> None:
        """members: the symbols of each of the `sets`, of `width` symbols."""
        left = iter(members)
        for condition in self._all:
            own = [0] * width
            for number, merged in zip(range(len(condition.dfa.table[0])), left, strict=False):
                for symbol in merged:
                    own[symbol] = number
            self._symbols.append(own)

    def begun(self, look: syntax.Look, before: int, pending: _Pending) -> _Pending | None:
        """What is pending after a lookahead too; None if it cannot hold."""
        number = self._numbers.get((look, before), self._numbers[look, EDGE])
        return self._joined(pending, number, 0)

    def after(self, pending: _Pending, symbol: int) -> _Pending | None:
        """What is pending after one more character; None if something cannot hold any more."""
        found: _Pending | None = _NONE
        for number, state in pending:
            target = self._all[number].dfa.table[state][self._symbols[number][symbol]]
            found = self._joined(found, number, target)
            if found is None:
                return None
        return found

    def _joined(self, pending: _Pending, number: int, state: int) -> _Pending | None:
        condition = self._all[number]
        if state in condition.done:
            return pending
        return pending | {(number, state)} if state in condition.live else None

    def hold_at_end(self, pending: _Pending) -> bool:
        return all(state in self._all[number].dfa.accepting for number, state in pending)


def _condition(look: syntax.Look, before: int) -> _Condition:
    dfa = compile_dfa(syntax.concat([look.item, syntax.ANYTHING]), before)
    others = complement(dfa)
    if look.negated:
        dfa, others = others, dfa
    return _Condition(dfa, dfa.live_states(), frozenset(range(len(dfa.table))) - others.live_states())


def _asserts(regex: syntax.Regex, kinds: str) -> bool:
    return any(isinstance(part, syntax.Assertion) and part.kind in kinds for part in syntax.parts(regex))


def _guarded_closure(
    nfa: _Nfa, conditions: _Conditions, core: frozenset[_Thread], before: int, after: int
) -> set[_Thread]:
    seen = set(core)
    todo = list(core)
    while todo:
        state, pending = todo.pop()
        threads = [(target, pending) for target in nfa.epsilon[state]]
        threads += [(t, pending) for kind, t in nfa.guards.get(state, ()) if _holds(kind, before, after)]
        for look, target in nfa.looks.get(state, ()):
            begun = conditions.begun(look, before, pending)
            if begun is not None:
                threads.append((target, begun))
        for thread in threads:
            if thread not in seen:
                seen.add(thread)
                todo.append(thread)
    spend(1 + len(seen) // 4)
    return seen


def _guarded_subsets(nfa: _Nfa, before: int) -> Dfa:
    conditions = _Conditions(nfa)
    words = conditions.mention_words() or any(kind in "bB" for own in nfa.guards.values() for kind, _ in own)
    sets = [*nfa.sets, *conditions.sets()]
    cuts, symbols, members = partition([*sets, syntax.WORD] if words else sets)
    word_symbols = set(members[len(sets)]) if words else set[int]()
    width = max(symbols) + 1
    moves = nfa.symbol_moves(members)
    conditions.read(members[len(nfa.sets) :], width)
    universal = {(state, _NONE) for state in nfa.universal_states()}

    def step(state: tuple[frozenset[_Thread], int]) -> tuple[list[tuple[frozenset[_Thread], int]], bool]:
        core, kind = state
        at_end = _guarded_closure(nfa, conditions, core, kind, EDGE)
        is_end = any(place == nfa.accept and conditions.hold_at_end(pending) for place, pending in at_end)
        successors: list[set[_Thread]] = [set() for _ in range(width)]
        for after in (WORD_CHAR, OTHER_CHAR) if words else (OTHER_CHAR,):
            for place, pending in _guarded_closure(nfa, conditions, core, kind, after):
                for symbol, target in moves[place]:
                    if not words or (symbol in word_symbols) == (after == WORD_CHAR):
                        left = conditions.after(pending, symbol)
                        if left is not None:
                            successors[symbol].add((target, left))
        spend(width // 4 + sum(len(targets) for targets in successors) // 8)
        found: list[tuple[frozenset[_Thread], int]] = []
        for symbol, targets in enumerate(successors):
            next_kind = WORD_CHAR if symbol in word_symbols else OTHER_CHAR
            if done := targets & universal:
                targets, next_kind = {min(done)}, OTHER_CHAR
            found.append((_least_bound(targets), next_kind))
        return found, is_end

    start = (frozenset({(nfa.start, _NONE)}), before)
    return explored(cuts, symbols, start, step, MAX_DFA_STATES, _TOO_MANY)


def _least_bound(threads: set[_Thread]) -> frozenset[_Thread]:
    """The threads without those that another one at the same state asks less than."""
    by_state: dict[int, list[_Pending]] = {}
    for state, pending in threads:
        by_state.setdefault(state, []).append(pending)
    if len(by_state) == len(threads):
        return frozenset(threads)
    spend(sum(len(own) ** 2 for own in by_state.values()) // 8)
    return frozenset(
        (state, pending)
        for state, own in by_state.items()
        for pending in own
        if not any(other < pending for other in own)
    )
