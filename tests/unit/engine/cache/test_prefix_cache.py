"""CellCounter against a model that names every cell."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jan_serve.engine.cache.prefix_cache import CellCounter, PrefixCache, PrefixMatch
from jan_serve.engine.tokens import Tokens

IDS = st.integers(0, 5)


class CellsModel(RuleBasedStateMachine):
    """A sequence is a list of cell names; sharing copies names; a cell is used while some sequence lists it."""

    def __init__(self) -> None:
        super().__init__()
        self.counter = CellCounter(1000)
        self.model: dict[int, list[int]] = {}
        self.names = itertools.count()

    @rule(seq_id=IDS, count=st.integers(0, 5))
    def extend(self, seq_id: int, count: int) -> None:
        self.counter.extend(seq_id, count)
        if count:
            self.model.setdefault(seq_id, []).extend(itertools.islice(self.names, count))

    @rule(source=IDS, to=IDS, part=st.floats(0, 1))
    def share(self, source: int, to: int, part: float) -> None:
        if to in self.model or source == to:
            return
        cells = self.model.get(source, [])
        length = round(part * len(cells))
        self.counter.share(source, to, length)
        if length:
            self.model[to] = cells[:length]

    @rule(seq_id=IDS)
    def remove(self, seq_id: int) -> None:
        self.counter.remove(seq_id)
        self.model.pop(seq_id, None)

    @rule(answer=st.integers(0, 9))
    def clear(self, answer: int) -> None:
        if answer == 0:
            self.counter.clear()
            self.model.clear()

    @rule(seq_ids=st.lists(IDS))
    def held_by(self, seq_ids: list[int]) -> None:
        held = {cell for seq_id in seq_ids for cell in self.model.get(seq_id, [])}
        assert self.counter.held_by(seq_ids) == len(held)

    @invariant()
    def counts_agree(self) -> None:
        used = {cell for cells in self.model.values() for cell in cells}
        assert self.counter.used == len(used)
        assert self.counter.free == 1000 - len(used)
        for seq_id in range(6):
            cells = self.model.get(seq_id, [])
            others = {c for other, held in self.model.items() if other != seq_id for c in held}
            assert self.counter.length(seq_id) == len(cells)
            assert self.counter.exclusive(seq_id) == len(set(cells) - others)


TestCellCounter = CellsModel.TestCase


def test_sharing_needs_cells_that_are_there() -> None:
    counter = CellCounter(10)
    counter.extend(0, 3)
    with pytest.raises(ValueError, match="sequence 0 holds 3 cells, not 4"):
        counter.share(0, 1, 4)
    with pytest.raises(ValueError, match="sequence 5 holds 0 cells, not 1"):
        counter.share(5, 1, 1)
    assert counter.used == 3
    assert counter.length(1) == 0


def test_a_sequence_that_holds_cells_takes_no_others() -> None:
    counter = CellCounter(10)
    counter.extend(0, 3)
    counter.extend(1, 1)
    with pytest.raises(ValueError, match="sequence 1 holds cells already"):
        counter.share(0, 1, 2)
    assert counter.used == 4


def ids(*tokens: int) -> Tokens:
    return np.array(tokens, np.int32)


def holding(*entries: Tokens, whole_only: bool = False) -> PrefixCache:
    """A cache whose entries have the ids 0, 1, … and were added in this order."""
    cache = PrefixCache(whole_only=whole_only)
    for seq_id, tokens in enumerate(entries):
        assert cache.add(seq_id, tokens) == []
    return cache


@pytest.mark.parametrize(
    ("entries", "prompt", "expected"),
    [
        ([], ids(1, 2), None),
        ([ids(1, 2, 3)], ids(9, 2, 3), None),
        ([ids(1, 2, 3)], ids(1, 2, 9), PrefixMatch(0, 2)),
        ([ids(1, 2, 3), ids(1, 9)], ids(1, 2, 3, 4), PrefixMatch(0, 3)),
        ([ids(1, 9), ids(1, 2, 3)], ids(1, 2, 3, 4), PrefixMatch(1, 3)),
        # The last token of the prompt is always computed.
        ([ids(1, 2, 3)], ids(1, 2, 3), PrefixMatch(0, 2)),
        ([ids(1, 2, 3, 4)], ids(1, 2, 3), PrefixMatch(0, 2)),
        ([ids(1)], ids(1), None),
    ],
)
def test_the_longest_usable_prefix(
    entries: list[Tokens], prompt: Tokens, expected: PrefixMatch | None
) -> None:
    assert holding(*entries).match(prompt) == expected


@pytest.mark.parametrize(
    ("entries", "prompt", "expected"),
    [
        ([ids(1, 2, 3)], ids(1, 2, 3, 4), PrefixMatch(0, 3)),
        ([ids(1, 2, 3)], ids(1, 2, 9), None),
        # Its state is past the point where the prompt's last token must be computed.
        ([ids(1, 2, 3)], ids(1, 2, 3), None),
        ([ids(1), ids(1, 2), ids(1, 2, 9)], ids(1, 2, 3), PrefixMatch(1, 2)),
    ],
)
def test_memory_that_cannot_be_cut_is_shared_whole(
    entries: list[Tokens], prompt: Tokens, expected: PrefixMatch | None
) -> None:
    assert holding(*entries, whole_only=True).match(prompt) == expected


@pytest.mark.parametrize(
    ("usable", "expected"),
    [
        ({0, 1, 2, 7}, PrefixMatch(0, 3)),
        ({1, 2, 7}, PrefixMatch(1, 3)),
        ({2, 7}, PrefixMatch(7, 3)),
        ({2}, PrefixMatch(2, 2)),
        (set[int](), None),
    ],
)
def test_what_cannot_be_shared_gives_way_to_the_next_best(
    usable: set[int], expected: PrefixMatch | None
) -> None:
    """With a sliding window, a restored sequence lacks cells that a token after the prefix attends to."""
    cache = holding(ids(1, 2, 3, 5), ids(1, 2, 3, 6), ids(1, 2, 7))
    asked: dict[int, int] = {}

    def is_usable(seq_id: int, length: int) -> bool:
        asked[seq_id] = length
        return seq_id in usable

    found = cache.match(ids(1, 2, 3, 4), [(7, ids(1, 2, 3))], is_usable=is_usable)
    assert found == expected
    assert asked[0] == 3, "that of the prefix"


def test_whole_only_holds_for_running_sequences_too() -> None:
    cache = PrefixCache(whole_only=True)
    assert cache.match(ids(1, 2, 3), [(4, ids(1, 2, 9))]) is None
    assert cache.match(ids(1, 2, 3), [(4, ids(1, 2))]) == PrefixMatch(4, 2)


def test_an_entry_that_a_longer_one_holds_as_well_is_given_back() -> None:
    cache = holding(ids(1, 2), ids(5), ids(1, 3))
    assert cache.add(9, ids(1, 2, 3)) == [0]
    assert cache.seq_ids == [1, 2, 9]
    assert 0 not in cache


def test_equal_sequences_are_kept_once() -> None:
    cache = holding(ids(1, 2))
    assert cache.add(9, ids(1, 2)) == [0]
    assert cache.seq_ids == [9]


def test_states_are_not_covered_by_longer_ones() -> None:
    cache = holding(ids(1, 2), whole_only=True)
    assert cache.add(9, ids(1, 2, 3)) == []
    assert len(cache) == 2


def test_least_recently_used_goes_first() -> None:
    cache = holding(ids(1), ids(2), ids(3))
    assert cache.least_recent() == 0
    cache.touch(0)
    assert cache.seq_ids == [1, 2, 0]
    cache.remove(1)
    assert cache.least_recent() == 2
    cache.remove(1)
    cache.touch(1)
    assert cache.seq_ids == [2, 0]
    for seq_id in (0, 2):
        cache.remove(seq_id)
    assert cache.least_recent() is None
    assert len(cache) == 0


def test_an_answer_is_cut_off_once() -> None:
    cache = PrefixCache()
    cache.add(1, ids(1, 2, 3, 4), prompt_length=3)
    cache.add(2, ids(5, 6), prompt_length=2)
    cache.add(3, ids(7, 8))
    assert [cache.cut_answer(seq_id) for seq_id in (1, 1, 2, 3)] == [True, False, False, False]
    assert cache.tokens(1).tolist() == [1, 2, 3]
