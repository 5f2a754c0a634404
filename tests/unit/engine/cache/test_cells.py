"""CellCounter against a model that names every cell."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jan_serve.engine.cache.cells import CellCounter

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
