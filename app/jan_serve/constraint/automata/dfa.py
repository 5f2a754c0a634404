"""Deterministic finite automata over Unicode code points, their Boolean algebra, and how many words they have. A `Dfa`
is complete: every state has a successor for every symbol. A symbol is a class of code points that the automaton never
tells apart; `cuts` and `symbols` map code points to symbols."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache, reduce
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeVar

import msgspec

from jan_serve.constraint import charset
from jan_serve.constraint.charset import MAX_CODE_POINT, CharSet
from jan_serve.constraint.limits import MAX_PRODUCT_STATES, spend
from jan_serve.errors import GrammarTooComplex

S = TypeVar("S", bound=Hashable)


class Dfa(msgspec.Struct, frozen=True, eq=False):
    """State 0 is the start. `cuts[i]` is the first code point of the i-th interval, whose symbol is `symbols[i]`."""

    cuts: tuple[int, ...]
    symbols: tuple[int, ...]
    table: tuple[tuple[int, ...], ...]
    accepting: frozenset[int]

    def matches(self, text: str) -> bool:
        """Whether the whole of `text` is a word."""
        return reduce(self.step, text, 0) in self.accepting

    def step(self, state: int, c: str) -> int:
        """The state after one more character."""
        return self.table[state][self.symbols[bisect_right(self.cuts, ord(c)) - 1]]

    def symbol_sets(self) -> list[CharSet]:
        """The code points of each symbol."""
        ranges: list[list[tuple[int, int]]] = [[] for _ in range(max(self.symbols) + 1)]
        ends = (*self.cuts[1:], MAX_CODE_POINT + 1)
        for low, end, symbol in zip(self.cuts, ends, self.symbols, strict=True):
            own = ranges[symbol]
            if own and own[-1][1] == low - 1:
                own[-1] = (own[-1][0], end - 1)
            else:
                own.append((low, end - 1))
        return [tuple(r) for r in ranges]

    def live_states(self) -> frozenset[int]:
        """The states from which some word can still be completed."""
        return _live_states(self)

    def live_edges(self) -> dict[int, dict[int, CharSet]]:
        """Per live state, the characters that lead to each live state."""
        sets, live = self.symbol_sets(), self.live_states()
        edges: dict[int, dict[int, CharSet]] = {}
        for state in live:
            spend(1 + len(sets) // 8)
            grouped: dict[int, list[CharSet]] = {}
            for symbol, target in enumerate(self.table[state]):
                if target in live:
                    grouped.setdefault(target, []).append(sets[symbol])
            edges[state] = {target: charset.union(*own) for target, own in grouped.items()}
        return edges

    def is_empty(self) -> bool:
        """Whether there is no word at all. Every state of a Dfa built here is reachable."""
        return not self.accepting


@lru_cache(maxsize=64)
def _live_states(dfa: Dfa) -> frozenset[int]:
    spend(len(dfa.table) * (16 + len(dfa.table[0])) // 64)
    sources: list[list[int]] = [[] for _ in dfa.table]
    for state, row in enumerate(dfa.table):
        for target in set(row):
            sources[target].append(state)
    return frozenset(reached(dfa.accepting, sources.__getitem__))


def reached(start: Iterable[S], onward: Callable[[S], Iterable[S]]) -> set[S]:
    """All that is reached from the start, which it has too."""
    found = set(start)
    todo = list(found)
    while todo:
        new = set(onward(todo.pop())) - found
        found |= new
        todo += new
    return found


def partition(sets: Sequence[CharSet]) -> tuple[tuple[int, ...], tuple[int, ...], list[list[int]]]:
    """Split the code points into the coarsest symbols that respect `sets`. Returns (cuts, symbols, members) where
    members[i] lists the symbols that make up sets[i]."""
    toggles: dict[int, int] = {0: 0}
    for index, chars in enumerate(sets):
        bit = 1 << index
        for low, high in chars:
            toggles[low] = toggles.get(low, 0) ^ bit
            if high < MAX_CODE_POINT:
                toggles[high + 1] = toggles.get(high + 1, 0) ^ bit
    intervals: list[tuple[int, int]] = []
    known: dict[int, int] = {}
    signature = 0
    for cut in sorted(toggles):
        signature ^= toggles[cut]
        spend(1 + len(sets) // 2048)
        intervals.append((cut, known.setdefault(signature, len(known))))
    members: list[list[int]] = [[] for _ in sets]
    for signature, symbol in known.items():
        spend(signature.bit_count() // 4)
        while signature:
            bit = signature & -signature
            signature ^= bit
            members[bit.bit_length() - 1].append(symbol)
    return *_merged(intervals), members


def complement(a: Dfa) -> Dfa:
    """All words that `a` does not have."""
    return Dfa(a.cuts, a.symbols, a.table, frozenset(range(len(a.table))) - a.accepting)


def intersect(a: Dfa, b: Dfa) -> Dfa:
    return minimize(_product(a, b, lambda x, y: x and y, both=True))


def is_within(a: Dfa, b: Dfa) -> bool:
    """Whether each word of one is one of the other."""
    return a is b or not share_word([a, complement(b)])


def share_word(all_of: Sequence[Dfa]) -> bool:
    """Whether some text is a word of all: found without their intersection."""
    _, _, columns = _merge_alphabets(all_of)
    live = [each.live_states() for each in all_of]
    start = (0,) * len(all_of)
    found: set[tuple[int, ...]] = {start} if all(0 in own for own in live) else set()
    todo = list(found)
    while todo:
        states = todo.pop()
        if all(state in each.accepting for state, each in zip(states, all_of, strict=True)):
            return True
        spend(1 + len(columns) * len(all_of) // 16)
        rows = [each.table[state] for state, each in zip(states, all_of, strict=True)]
        for column in columns:
            targets = tuple([row[symbol] for row, symbol in zip(rows, column, strict=True)])
            if targets not in found and all([state in own for state, own in zip(targets, live, strict=True)]):
                found.add(targets)
                todo.append(targets)
    return False


def with_length(a: Dfa, low: int, high: int | None) -> Dfa:
    """Words of low..high code points. Counting states are nearly all distinct, so it is not minimised."""
    return _product(a, of_length(low, high), lambda x, y: x and y, both=True)


def unite(a: Dfa, b: Dfa) -> Dfa:
    return minimize(_product(a, b, lambda x, y: x or y, both=False))


def _merge_alphabets(all_of: Sequence[Dfa]) -> tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, ...]]]:
    """The cuts of all, the symbols there, and what each symbol is to each automaton."""
    columns: dict[tuple[int, ...], int] = {}
    intervals: list[tuple[int, int]] = []
    for cut in sorted({cut for each in all_of for cut in each.cuts}):
        column = tuple([each.symbols[bisect_right(each.cuts, cut) - 1] for each in all_of])
        intervals.append((cut, columns.setdefault(column, len(columns))))
    return *_merged(intervals), list(columns)


def _product(a: Dfa, b: Dfa, accept: Callable[[bool, bool], bool], *, both: bool) -> Dfa:
    """The reachable product. With `both`, a pair with a dead half is dead, which keeps intersections small."""
    cuts, symbols, pairs = _merge_alphabets((a, b))
    dead: tuple[int, int] = (-1, -1)
    live_a, live_b = (a.live_states(), b.live_states()) if both else (frozenset[int](), frozenset[int]())

    def alive(pair: tuple[int, int]) -> tuple[int, int]:
        return dead if both and (pair[0] not in live_a or pair[1] not in live_b) else pair

    def step(pair: tuple[int, int]) -> tuple[list[tuple[int, int]], bool]:
        if pair == dead:
            return [dead] * len(pairs), False
        spend(1 + len(pairs) // 8)
        row_a, row_b = a.table[pair[0]], b.table[pair[1]]
        targets = [alive((row_a[symbol_a], row_b[symbol_b])) for symbol_a, symbol_b in pairs]
        return targets, accept(pair[0] in a.accepting, pair[1] in b.accepting)

    too_many = "combining the string constraints needs too many states"
    return explored(cuts, symbols, alive((0, 0)), step, MAX_PRODUCT_STATES, too_many)


def explored(
    cuts: Iterable[int],
    symbols: Iterable[int],
    start: S,
    step: Callable[[S], tuple[Iterable[S], bool]],
    most: int,
    too_many: str,
) -> Dfa:
    """The automaton of all states that are reached. step: where each symbol leads, and whether a word may end. Raises
    GrammarTooComplex with the reason `too_many` above `most` states."""
    index: dict[S, int] = {start: 0}
    order = [start]
    rows: list[tuple[int, ...]] = []
    accepting: set[int] = set()
    for number, state in enumerate(order):
        targets, is_end = step(state)
        if is_end:
            accepting.add(number)
        row: list[int] = []
        for target in targets:
            known = index.get(target)
            if known is None:
                known = index[target] = len(order)
                order.append(target)
                if known > most:
                    raise GrammarTooComplex(too_many)
            row.append(known)
        rows.append(tuple(row))
    return Dfa(tuple(cuts), tuple(symbols), tuple(rows), frozenset(accepting))


def from_words(words: Iterable[str]) -> Dfa:
    """The automaton of a finite set, as a trie."""
    words = sorted(words)
    alphabet = sorted({ord(c) for w in words for c in w})
    cuts, symbols, members = partition([((c, c),) for c in alphabet])
    symbol_of = {chr(c): members[i][0] for i, c in enumerate(alphabet)}
    width = max(symbols) + 1
    dead = 1
    table: list[list[int]] = [[dead] * width, [dead] * width]
    accepting: set[int] = set()
    for word in words:
        spend(1 + len(word) * (8 + width) // 64)
        state = 0
        for c in word:
            symbol = symbol_of[c]
            target = table[state][symbol]
            if target == dead:
                target = table[state][symbol] = len(table)
                table.append([dead] * width)
                if target > MAX_PRODUCT_STATES:
                    raise GrammarTooComplex("an enumeration of strings is too long to combine")
            state = target
        accepting.add(state)
    return Dfa(cuts, symbols, tuple(map(tuple, table)), frozenset(accepting))


def of_length(low: int, high: int | None) -> Dfa:
    """All words of low..high code points."""
    last = low if high is None else high + 1
    if last > MAX_PRODUCT_STATES:
        raise GrammarTooComplex("a length bound is too large to combine with the other string constraints")
    table = [(state + 1,) for state in range(last)] + [(last,)]
    accepting = frozenset(range(low, last + 1 if high is None else last))
    return Dfa((0,), (0,), tuple(table), accepting)


def minimize(a: Dfa) -> Dfa:
    """The smallest equivalent automaton, with equal symbols merged. Blocks of states are split by the blocks that
    their rows lead to. Of the parts of a block the largest keeps its number, so each state is renumbered a logarithmic
    number of times (as in Hopcroft 1971), and only the sources of renumbered states are looked at again."""
    count, width = len(a.table), len(a.table[0])
    if count > 3000:
        return a
    spend(1 + count * width // 32)
    sources: list[list[int]] = [[] for _ in range(count)]
    for state, row in enumerate(a.table):
        for target in set(row):
            sources[target].append(state)
    blocks = [block for block in (set(a.accepting), set(range(count)) - a.accepting) if block]
    block_of = [0] * count
    for state in blocks[-1]:
        block_of[state] = len(blocks) - 1
    number_of = block_of.__getitem__
    dirty = set(range(count))
    while dirty:
        spend(1 + len(dirty) * width // 32)
        by_block: dict[int, list[int]] = {}
        for state in dirty:
            by_block.setdefault(block_of[state], []).append(state)
        dirty = set[int]()
        parts_of: list[tuple[int, list[list[int]]]] = []
        for number, again in by_block.items():
            parts = _parts(a.table, blocks[number], again, number_of)
            if len(parts) > 1:
                parts_of.append((number, parts))
        for number, parts in parts_of:
            parts.sort(key=len)
            for part in parts[:-1]:
                blocks[number].difference_update(part)
                for state in part:
                    block_of[state] = len(blocks)
                    dirty.update(sources[state])
                blocks.append(set(part))
    return _quotient(a, block_of)


def _parts(
    table: Sequence[Sequence[int]], block: set[int], again: list[int], number_of: Callable[[int], int]
) -> list[list[int]]:
    """The parts of a block by where the rows lead. The states that are not in `again` all lead to the same blocks."""
    parts: dict[tuple[int, ...], list[int]] = {}
    if len(again) < len(block):
        others = list(block.difference(again))
        parts[tuple(map(number_of, table[others[0]]))] = others
    for state in again:
        parts.setdefault(tuple(map(number_of, table[state])), []).append(state)
    return list(parts.values())


def _quotient(a: Dfa, block_of: list[int]) -> Dfa:
    """Merge states of one block; number them from the start state on; merge symbols with equal columns."""
    number = {block_of[0]: 0}
    sample = [0]
    for state in sample:
        for target in a.table[state]:
            if block_of[target] not in number:
                number[block_of[target]] = len(sample)
                sample.append(target)
    rows = [[number[block_of[target]] for target in a.table[state]] for state in sample]
    columns: dict[tuple[int, ...], int] = {}
    renamed = [columns.setdefault(column, len(columns)) for column in zip(*rows, strict=True)]
    table = tuple(zip(*columns, strict=True))
    cuts, symbols = _merged(zip(a.cuts, (renamed[old] for old in a.symbols), strict=True))
    accepting = frozenset(i for i, state in enumerate(sample) if state in a.accepting)
    return Dfa(cuts, symbols, table, accepting)


def _merged(intervals: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The cuts and symbols, neighbours with one symbol joined."""
    joined = [next(own) for _, own in groupby(intervals, key=itemgetter(1))]
    return tuple(cut for cut, _ in joined), tuple(symbol for _, symbol in joined)


def begins_with_any(a: Dfa, chars: CharSet) -> bool:
    """Whether every text of these characters is the beginning of a word."""
    live = a.live_states()
    taken = [symbol for symbol, own in enumerate(a.symbol_sets()) if charset.intersect(own, chars)]
    found, todo = {0}, [0]
    while todo:
        state = todo.pop()
        spend(1 + len(taken) // 8)
        if state not in live:
            return False
        new = {a.table[state][symbol] for symbol in taken} - found
        found |= new
        todo += new
    return True


def has_word(a: Dfa, low: int, high: int | None) -> bool:
    """Whether a word of low..high characters exists; `high` None means no bound."""
    live = a.live_states()
    found = live & {0}
    # Beyond the last state, a longer word has passed one twice: the sets of states repeat.
    top = low + len(a.table) if high is None else min(high, low + len(a.table))
    for length in range(top + 1):
        spend(1 + len(found) * len(a.table[0]) // 64)
        if length >= low and not found.isdisjoint(a.accepting):
            return True
        found = frozenset(target for state in found for target in a.table[state]) & live
        if not found:
            return False
    return False


def longest_word(a: Dfa) -> int | None:
    """Length of the longest word; None if the length is unbounded, -1 if there is no word."""
    live = a.live_states()
    if 0 not in live:
        return -1
    depth: dict[int, int] = {}
    on_path: set[int] = set()
    stack: list[tuple[int, bool]] = [(0, False)]
    spend(len(a.table) * (8 + len(a.table[0])) // 32)
    while stack:
        state, leaving = stack.pop()
        targets = {t for t in a.table[state] if t in live}
        if leaving:
            on_path.discard(state)
            depth[state] = max((depth[t] + 1 for t in targets), default=0)
            continue
        if state in depth:
            continue
        if state in on_path:
            return None
        on_path.add(state)
        stack.append((state, True))
        for target in targets:
            if target in on_path:
                return None
            if target not in depth:
                stack.append((target, False))
    return depth[0]


SURROGATES: Final = ((0xD800, 0xDFFF),)
"""Code points that no text has."""


def is_endless(dfa: Dfa) -> bool:
    """Whether every beginning of a word begins endlessly many; so it is of no words at all."""
    live = dfa.live_states()
    # Where each state leads on to another one, each leads to a cycle.
    return all(not live.isdisjoint(dfa.table[state]) for state in live)


def endless_states(dfa: Dfa) -> frozenset[int]:
    """The states from which endlessly many words go on."""
    live = dfa.live_states()
    left = {state: live.intersection(dfa.table[state]) for state in live}
    before: dict[int, list[int]] = {state: [] for state in live}
    for state, targets in left.items():
        for target in targets:
            before[target].append(state)
    counts = {state: len(targets) for state, targets in left.items()}
    todo = [state for state, count in counts.items() if not count]
    for state in todo:
        del counts[state]
        for source in before[state]:
            counts[source] -= 1
            if not counts[source]:
                todo.append(source)
    return frozenset(counts)


def count_words(dfa: Dfa, most: int) -> int:
    """The number of words of a finite language; most + 1 for more."""
    edges = dfa.live_edges()
    counts: dict[int, int] = {}
    stack = [0] if 0 in edges else []
    while stack:
        state = stack[-1]
        waiting = [target for target in edges[state] if target not in counts]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        found = (state in dfa.accepting) + sum(
            charset.size(charset.subtract(chars, SURROGATES)) * counts[target]
            for target, chars in edges[state].items()
        )
        counts[state] = min(found, most + 1)
    return counts.get(0, 0)


def all_words(dfa: Dfa) -> list[str]:
    """All words of a finite language of few."""
    edges = dfa.live_edges()
    found: list[str] = []
    todo = [(0, "")] if 0 in edges else []
    while todo:
        state, word = todo.pop()
        if state in dfa.accepting:
            found.append(word)
        todo += [
            (target, word + chr(code))
            for target, chars in edges[state].items()
            for low, high in chars
            for code in range(low, high + 1)
        ]
    return found
