"""A small recognizer: decides whether a text belongs to a grammar, and if not, where it leaves it. It simulates all
parse stacks at once and memoises every step: fast enough for tests and for `grammar --check`. Generation uses
llguidance instead."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import NamedTuple, TypeAlias

from jan_serve.constraint import ast, charset
from jan_serve.constraint.layout import LAYOUTS, Layout, Nesting
from jan_serve.errors import GrammarTooComplex
from tests.unit.constraint.grammars import members_in_turn

_MAX_CONFIGURATIONS = 200_000
_ENDS_SOON = 0.3
"""How often the first text that is found is taken."""
_ENOUGH = 200
_FOR_EACH_CHARACTER = 20
"""Counting the characters of a long string takes about ten."""

# A continuation is a linked list of the expressions still to match, innermost first, each with its nesting.
# Continuations are interned to integers, so equal ones are one configuration; -1 is the empty one.
States: TypeAlias = frozenset[int]
_Cell: TypeAlias = tuple["ast.Expr | _Open | _Pair", Nesting | None, int]


class _Open(NamedTuple):
    """An `Until` after some characters. end: the last of them, as many as its stop has. opening: the
    rest of a section's opening text, if the characters are its beginning; they must not complete it."""

    until: ast.Until
    written: int
    end: str
    opening: str = ""


class _Pair(NamedTuple):
    """A `Both` or an `Except` after some characters: where its text is in the item, and in the other or the words."""

    item: States
    other: States
    is_both: bool

    def is_end(self) -> bool:
        return -1 in self.item and (-1 in self.other) == self.is_both


class Recognizer:
    """Matches texts against one grammar. Not thread-safe: it caches. Left-recursive grammars are not allowed."""

    def __init__(self, grammar: ast.Grammar, layouts: tuple[Layout, ...] = LAYOUTS) -> None:
        self._grammar = grammar
        self._layouts = layouts
        self._ids: dict[_Cell, int] = {}
        self._cells: list[_Cell] = []
        self._most_cells = _MAX_CONFIGURATIONS
        self._closures: dict[int, frozenset[int]] = {}
        self._going_on: dict[_Pair, bool] = {}
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        """Whether the whole text belongs to the grammar."""
        return self.leaves_at(text) is None

    def leaves_at(self, text: str) -> int | None:
        """None where the text belongs; else the index of the first character that no word continues with, or
        `len(text)` where the text is only the beginning of a word."""
        self._most_cells += _FOR_EACH_CHARACTER * len(text)
        states = self.start()
        for index, c in enumerate(text):
            states = self.step(states, c)
            if not states:
                return index
        return None if -1 in states else len(text)

    def start(self) -> States:
        """Before the first character. Where the grammar is pruned, some word begins with a text if any state is left
        after it, and the text is one if -1 is among them."""
        return self._closure(self._cell(ast.RuleRef(self._grammar.root), None, -1))

    def step(self, states: States, c: str) -> States:
        key = (states, c)
        known = self._steps.get(key)
        if known is None:
            found: set[int] = set()
            for state in states:
                if state >= 0:
                    found |= self._advance(state, c)
            known = self._steps[key] = frozenset(found)
        return known

    def _advance(self, state: int, c: str) -> frozenset[int]:
        expr, _, rest = self._cells[state]
        if isinstance(expr, ast.Literal):
            if expr.text[0] != c:
                return frozenset()
            left = ast.Literal(expr.text[1:])
            return self._closure(self._cell(left, None, rest) if left.text else rest)
        if isinstance(expr, _Open):
            return self._step_until(expr, c, rest)
        if isinstance(expr, _Pair):
            return self._within(self._pair_after(expr, c), rest)
        assert isinstance(expr, ast.CharClass)
        return self._closure(rest) if charset.contains(expr.chars, ord(c)) else frozenset()

    def _step_until(self, expr: _Open, c: str, rest: int) -> frozenset[int]:
        until = expr.until
        opening = expr.opening[1:] if expr.opening.startswith(c) else ""
        if expr.opening == c:
            return frozenset()
        written, end = expr.written + 1, (expr.end + c)[-len(until.stop) :]
        before = written - len(until.stop)
        if end == until.stop:
            fits = until.low <= before and (until.high is None or before <= until.high)
            return self._closure(rest) if fits else frozenset()
        if until.high is None:
            # All that is above the lower bound is alike.
            written = min(written, until.low + len(until.stop))
        elif before >= until.high:
            return frozenset()
        return self._closure(self._cell(_Open(until, written, end, opening), None, rest))

    # Intersections and differences

    def _begun(self, expr: ast.Both | ast.Except) -> _Pair:
        item = self._closure(self._cell(expr.item, None, -1))
        others = (expr.other,) if isinstance(expr, ast.Both) else expr.words
        other = (self._closure(self._cell(each, None, -1)) for each in others)
        return _Pair(item, frozenset[int]().union(*other), isinstance(expr, ast.Both))

    def _pair_after(self, pair: _Pair, c: str) -> _Pair:
        return pair._replace(item=self.step(pair.item, c), other=self.step(pair.other, c))

    def _within(self, pair: _Pair, rest: int) -> States:
        ended = self._closure(rest) if pair.is_end() else frozenset[int]()
        return ended | {self._cell(pair, None, rest)} if self._goes_on(pair) else ended

    def _goes_on(self, pair: _Pair) -> bool:
        """Whether more characters complete a text of the pair."""
        known = self._going_on.get(pair)
        if known is None:
            known = self._going_on[pair] = self._rest_of(pair, Random(0), may_be_empty=False) is not None
        return known

    def _rest_of(self, pair: _Pair, random: Random, *, may_be_empty: bool) -> str | None:
        """Characters that complete a text of the pair; None where none do."""
        found = "" if may_be_empty and pair.is_end() else None
        seen = {pair}
        todo = [(pair, "")]
        for pair, text in todo:
            letters = self.letters(pair.item | pair.other)
            random.shuffle(letters)
            for low, high in letters:
                character = chr(random.randint(low, min(high, low + 9)))
                after = self._pair_after(pair, character)
                if after.is_end():
                    found = text + character
                    if random.random() < _ENDS_SOON:
                        return found
                if after.item and after not in seen:
                    seen.add(after)
                    todo.append((after, text + character))
            if found is not None and len(seen) > _ENOUGH:
                break
        return found

    def letters(self, states: States) -> list[tuple[int, int]]:
        """Ranges of code points, of which each leads to the same states."""
        cuts = {0xD800, 0xE000}
        sets: list[charset.CharSet] = []
        todo = list(states)
        while todo:
            state = todo.pop()
            expr = self._cells[state][0] if state >= 0 else None
            if isinstance(expr, ast.Literal):
                sets.append(charset.of_chars(expr.text[0]))
            elif isinstance(expr, ast.CharClass):
                sets.append(expr.chars)
            elif isinstance(expr, _Pair):
                todo += [*expr.item, *expr.other]
            elif isinstance(expr, _Open):
                sets += [charset.ANY, *map(charset.of_chars, expr.until.stop + expr.opening)]
        for chars in sets:
            cuts.update(*((low, high + 1) for low, high in chars))
        ends = sorted(cuts)
        every = charset.union(*sets)
        parts = [(low, high - 1) for low, high in pairwise(ends)]
        return [part for part in parts if charset.contains(every, part[0]) and part[0] != 0xD800]

    def continuations(self, state: int, random: Random) -> list[tuple[ast.Expr | str, Nesting | None]]:
        """What a state waits for, in order: expressions, and characters of what is begun."""
        found: list[tuple[ast.Expr | str, Nesting | None]] = []
        while state >= 0:
            expr, nesting, state = self._cells[state]
            if isinstance(expr, _Pair):
                rest = self._rest_of(expr, random, may_be_empty=False)
                assert rest is not None
                found.append((rest, None))
            else:
                assert not isinstance(expr, _Open)
                found.append((expr, nesting))
        return found

    def word(self, expr: ast.Both | ast.Except, random: Random) -> str:
        """A short text of the expression."""
        text = self._rest_of(self._begun(expr), random, may_be_empty=True)
        assert text is not None
        return text

    def _cell(self, expr: ast.Expr | _Open | _Pair, nesting: Nesting | None, rest: int) -> int:
        key = (expr, nesting, rest)
        known = self._ids.get(key)
        if known is None:
            known = self._ids[key] = len(self._cells)
            self._cells.append(key)
            if known > self._most_cells:
                raise GrammarTooComplex("the grammar is too ambiguous to be checked against this text")
        return known

    def _closure(self, state: int) -> frozenset[int]:
        """The configurations that wait for a character (or -1, the end) and are reached without one."""
        known = self._closures.get(state)
        if known is not None:
            return known
        found: set[int] = set()
        seen = {state}
        todo = [state]
        while todo:
            cell = todo.pop()
            if cell < 0:
                found.add(cell)
                continue
            expr, nesting, rest = self._cells[cell]
            if isinstance(expr, ast.CharClass | _Open | _Pair) or (
                isinstance(expr, ast.Literal) and expr.text
            ):
                found.add(cell)
                continue
            if isinstance(expr, ast.Both | ast.Except):
                found |= self._within(self._begun(expr), rest)
                continue
            for target in self._unfold(expr, nesting, rest):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        result = self._closures[state] = frozenset(found)
        return result

    def _unfold(self, expr: ast.Expr, nesting: Nesting | None, rest: int) -> list[int]:
        if isinstance(expr, ast.Literal):  # the empty one
            return [rest]
        if isinstance(expr, ast.RuleRef):
            return [self._cell(self._grammar.rules[expr.name], nesting, rest)]
        if isinstance(expr, ast.Terminal):
            return [self._cell(expr.item, nesting, rest)]
        if isinstance(expr, ast.Special):
            return [self._cell(ast.Literal(expr.text), None, rest)]
        if isinstance(expr, ast.Until):
            opening, closing = expr.section or ("", "")
            plain = self._cell(_Open(expr, 0, "", opening), None, rest)
            if not closing:
                return [plain]
            section = ast.Sequence(
                (ast.Literal(opening), ast.Until(0, None, closing), ast.Literal(expr.stop))
            )
            return [plain, self._cell(section, None, rest)]
        if isinstance(expr, ast.Choice):
            return [self._cell(item, nesting, rest) for item in expr.items]
        if isinstance(expr, ast.Sequence):
            for item in reversed(expr.items):
                rest = self._cell(item, nesting, rest)
            return [rest]
        if isinstance(expr, ast.OneLayout):
            return [self._cell(expr.item, Nesting(layout), rest) for layout in self._layouts]
        if isinstance(expr, ast.Unordered):
            return [self._cell(option, nesting, rest) for option in members_in_turn(expr)]
        if isinstance(expr, ast.Mark | ast.Brackets):
            return [self._laid_out(expr, nesting, rest)]
        assert isinstance(expr, ast.Repeat)
        low, high = max(expr.low - 1, 0), None if expr.high is None else expr.high - 1
        targets = [rest] if expr.low == 0 else []
        if high is None or high >= 0:
            again = rest if high == 0 else self._cell(ast.Repeat(expr.item, low, high), nesting, rest)
            targets.append(self._cell(expr.item, nesting, again))
        return targets

    def _laid_out(self, expr: ast.Mark | ast.Brackets, nesting: Nesting | None, rest: int) -> int:
        assert nesting is not None
        if isinstance(expr, ast.Mark):
            return self._cell(ast.Literal(expr.text + nesting.after(expr)), None, rest)
        inner = nesting.deeper()
        closing = self._cell(ast.Literal(nesting.line() + expr.closing), None, rest)
        item = self._cell(expr.item, inner, closing)
        return self._cell(ast.Literal(expr.opening + inner.line()), None, item)


def matches(grammar: ast.Grammar, text: str) -> bool:
    """Whether the whole text belongs to the grammar. Raises GrammarTooComplex for hopelessly ambiguous ones."""
    return Recognizer(grammar).matches(text)
