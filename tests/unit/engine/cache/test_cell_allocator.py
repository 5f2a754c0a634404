"""What is kept of sequences below the KV cache: losing it costs time, and never a request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jan_serve.engine.cache.cell_allocator import CellAllocator
from jan_serve.engine.cache.state_cache import MIN_TOKENS, StateCache
from jan_serve.engine.cache.state_files import StateFiles, file_bytes
from jan_serve.engine.tokens import Tokens
from jan_serve.errors import EngineFailure
from tests.unit.engine.fake_context import FakeContext, sequence_of

N = MIN_TOKENS


def ids(token: int, count: int) -> Tokens:
    return np.full(count, token, np.int32)


class Bench:
    """The memory of a context, with a tier in RAM."""

    def __init__(self, files: StateFiles | None = None) -> None:
        self.context = FakeContext()
        context: Any = self.context
        self.states = StateCache(1 << 20, files)
        self.memory = CellAllocator(context, n_ctx=4096, n_sequences=4, states=self.states, idle_cells=64)

    def finished(self, tokens: Tokens) -> None:
        """A sequence that ran to its end."""
        sequence = sequence_of(tokens)
        self.memory.occupy(sequence, None, ())
        self.memory.cells.extend(sequence.seq_id, len(tokens))
        sequence.num_computed = len(tokens)
        self.memory.keep(sequence)

    def cached_lengths(self) -> list[int]:
        """Tokens of the finished sequences in the KV cache, the oldest first."""
        return [len(self.memory.cache.tokens(seq_id)) for seq_id in self.memory.cache.seq_ids]


def test_of_a_memory_in_an_unknown_state_nothing_is_saved() -> None:
    bench = Bench()
    bench.finished(ids(1, N))
    bench.memory.reset()
    bench.memory.save(0)
    assert bench.context.called("save") == []
    assert bench.memory.cells.used == 0
    assert bench.states.match(ids(1, N + 1)) is None


def test_at_the_end_no_more_is_copied_than_the_disk_may_hold(tmp_path: Path) -> None:
    size = file_bytes(N, 10)
    bench = Bench(StateFiles(tmp_path, "key", 3 * size - 1))
    for token in range(1, 5):
        bench.finished(ids(token, N))
    bench.memory.save(10.0)
    assert len(bench.context.called("save")) == 2
    assert bench.memory.cells.used == 0
    later = StateFiles(tmp_path, "key", 1 << 20)
    assert sorted(int(file.tokens[0]) for file in later) == [3, 4], "the most recent ones"


def test_finished_sequences_make_way_for_running_ones_the_oldest_first() -> None:
    """One at a time: a request waits for the copy."""
    bench = Bench()
    bench.finished(ids(1, 100))
    bench.finished(ids(2, 60))
    bench.finished(ids(4, 50))
    bench.memory.limit_idle_cells(())
    assert len(bench.memory.cache) == 3, "nothing runs that they would slow down"
    running = sequence_of(ids(3, 200))
    bench.memory.occupy(running, None, ())
    bench.memory.cells.extend(running.seq_id, 200)
    bench.memory.limit_idle_cells([running.seq_id])
    assert (bench.cached_lengths(), bench.memory.states.saved) == ([60, 50], 1)
    bench.memory.limit_idle_cells([running.seq_id])
    bench.memory.limit_idle_cells([running.seq_id])
    assert (bench.cached_lengths(), bench.memory.states.saved) == ([50], 2)
    back = sequence_of(ids(1, 101))
    assert not bench.memory.states.is_fetching(back, 0)
    assert bench.memory.occupy(back, None, [running]) == 100


def test_what_finished_sequences_share_with_running_ones_takes_no_room() -> None:
    bench = Bench()
    bench.finished(ids(1, 500))
    running = sequence_of(ids(1, 501))
    prefix = bench.memory.cache.match(running.prefix())
    assert bench.memory.occupy(running, prefix, ()) == 500
    bench.memory.limit_idle_cells([running.seq_id])
    assert (len(bench.memory.cache), bench.memory.states.saved) == (1, 0)


@pytest.mark.parametrize("budget", [0, 39], ids=["no RAM", "room for less than four"])
def test_without_room_in_ram_finished_sequences_stay(budget: int) -> None:
    """Where they are is better than nowhere, and than a write to disk for each request."""
    bench = Bench()
    context: Any = bench.context
    bench.memory = CellAllocator(context, n_ctx=4096, n_sequences=4, states=StateCache(budget), idle_cells=64)
    bench.finished(ids(1, 500))
    running = sequence_of(ids(2, 200))
    bench.memory.occupy(running, None, ())
    bench.memory.limit_idle_cells([running.seq_id])
    assert len(bench.memory.cache) == 1


@pytest.mark.parametrize("is_cuttable", [True, False])
def test_what_comes_back_shares_the_prefix_that_is_there(*, is_cuttable: bool) -> None:
    bench = Bench()
    bench.context.is_cuttable = is_cuttable
    common = ids(1, 300)
    bench.finished(np.concatenate([common, ids(2, 100)]))
    bench.memory.evict_oldest()
    bench.finished(np.concatenate([common, ids(3, 50)]))
    back = sequence_of(np.concatenate([common, ids(2, 101)]))
    prefix = bench.memory.cache.match(back.prefix())
    assert prefix is not None and prefix.length == 300
    assert not bench.memory.states.is_fetching(back, prefix.length)
    assert bench.memory.occupy(back, prefix, ()) == 400
    assert bench.memory.cells.length(back.seq_id) == 400
    assert bench.memory.cells.used == 350 + (100 if is_cuttable else 400)


def test_with_one_id_the_prefix_itself_makes_way() -> None:
    bench = Bench()
    context: Any = bench.context
    bench.memory = CellAllocator(context, n_ctx=4096, n_sequences=1, states=bench.states)
    bench.finished(ids(1, N))
    again = sequence_of(ids(1, N + 1))
    prefix = bench.memory.cache.match(again.prefix())
    assert prefix is not None
    assert bench.memory.occupy(again, prefix, ()) == 0
    assert bench.memory.cells.used == 0


def test_a_sequence_that_cannot_be_saved_does_not_make_way(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.context.save_fault = EngineFailure("no memory for the copy")
    bench.finished(ids(1, 500))
    bench.finished(ids(2, 10))
    running = sequence_of(ids(3, 200))
    bench.memory.occupy(running, None, ())
    bench.memory.limit_idle_cells([running.seq_id])
    assert len(bench.memory.cache) == 2, "nor do others in its place"
    assert "was not saved" in caplog.text


def test_without_files_nothing_is_copied_at_the_end() -> None:
    bench = Bench()
    bench.finished(ids(1, N))
    bench.memory.save(10.0)
    assert bench.context.called("save") == []


def test_a_state_without_the_window_is_not_restored() -> None:
    bench = Bench()
    bench.finished(ids(1, 500))
    bench.context.reaches = False
    again = sequence_of(ids(1, 501))
    bench.memory.evict_oldest()
    bench.memory.states.is_fetching(again, 0)
    assert bench.memory.occupy(again, None, ()) == 0
    assert bench.memory.cells.length(again.seq_id) == 0
