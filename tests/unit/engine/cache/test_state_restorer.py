"""StateRestorer: what is worth saving and restoring, and failures that cost no request."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from jan_serve.core.messages import ImagePiece
from jan_serve.engine.cache.prefix_cache import CellCounter, PrefixCache
from jan_serve.engine.cache.state_cache import MIN_TOKENS, SavedState, StateCache, StateMatch
from jan_serve.engine.cache.state_files import StateFiles
from jan_serve.engine.cache.state_restorer import StateRestorer
from jan_serve.engine.prompt_media import MediaChunk, PromptMedia
from jan_serve.engine.sequence import Sequence
from jan_serve.engine.tokens import Tokens
from jan_serve.errors import EngineFailure
from tests.unit.engine.cache.read_later import ReadLater
from tests.unit.engine.fake_context import FakeContext, sequence_of

N = MIN_TOKENS
RAM = 1 << 20


def ids(*parts: tuple[int, int]) -> Tokens:
    """Runs of one token each: (token, count)."""
    return np.concatenate([np.full(count, token, np.int32) for token, count in parts])


class SlowCache(StateCache):
    """Counts what is asked. Where a test wants it, a fetch waits for the test."""

    matches = 0
    pending: Future[SavedState | None] | None = None

    def match(self, prompt: Tokens, cut: Callable[[int], int] = int) -> StateMatch | None:
        self.matches += 1
        return super().match(prompt, cut)

    def fetch(self, match: StateMatch) -> Future[SavedState | None]:
        return self.pending or super().fetch(match)


class Bench:
    """A restorer over a context without a model."""

    def __init__(self, *, whole_only: bool = False, ram: int = RAM) -> None:
        self.context = FakeContext()
        context: Any = self.context
        self.states = SlowCache(ram, whole_only=whole_only)
        self.cells = CellCounter(4096)
        self.cache = PrefixCache(whole_only=whole_only)
        self.fetched = 0
        self.restorer = StateRestorer(self.states, context, self.cells, self.cache, self.count_fetched)
        self.asked_for: list[int] = []

    def cached(self, seq_id: int, tokens: Tokens, shared_with: int | None = None, length: int = 0) -> None:
        """A finished sequence in the KV cache, which may share its beginning."""
        if shared_with is not None:
            self.cells.share(shared_with, seq_id, length)
        self.cells.extend(seq_id, len(tokens) - length)
        self.cache.add(seq_id, tokens, len(tokens), 0)

    def count_fetched(self) -> None:
        self.fetched += 1

    def keep(self, tokens: Tokens) -> None:
        self.states.put(tokens, np.zeros(10, np.uint8))

    def make_room(self, count: int) -> bool:
        self.asked_for.append(count)
        return True

    def restore(self, sequence: Sequence, num_cached: int = 0) -> int:
        """As for a sequence that waits."""
        sequence.seq_id = 7
        assert not self.restorer.is_fetching(sequence, num_cached)
        return self.restorer.restore(sequence, num_cached, self.make_room)


# What is saved


@pytest.mark.parametrize(
    ("whole_only", "own", "is_saved"), [(False, N - 1, False), (False, N, True), (True, N - 1, True)]
)
def test_what_the_kv_cache_still_holds_is_not_saved(whole_only: bool, own: int, is_saved: bool) -> None:
    """Another sequence has all but the last tokens; one that cannot be cut is of no use there."""
    bench = Bench(whole_only=whole_only)
    bench.cached(1, ids((1, 100)))
    bench.cached(2, ids((1, 100), (2, own)), shared_with=1, length=100)
    assert bench.restorer.save_evicted(2), "nothing is lost"
    assert bench.context.called("save") == [2] * is_saved


def test_without_tiers_nothing_is_saved() -> None:
    bench = Bench(ram=0)
    bench.cached(2, ids((1, N)))
    assert bench.restorer.tiers.is_off
    assert bench.restorer.save_evicted(2)
    bench.restorer.save_checkpoint(sequence_of(ids((1, N))))
    assert bench.context.called("save") == []


def test_a_save_that_fails_is_said(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.context.save_fault = EngineFailure("no memory for the copy")
    bench.cached(2, ids((1, N)))
    assert not bench.restorer.save_evicted(2)
    assert bench.restorer.saved == 0
    assert f"a sequence of {N} tokens was not saved: no memory for the copy" in caplog.text


def test_a_checkpoint_is_what_is_computed() -> None:
    bench = Bench()
    sequence = sequence_of(ids((1, 3 * N)))
    sequence.seq_id, sequence.num_computed = 4, 2 * N
    bench.restorer.save_checkpoint(sequence)
    match = bench.states.match(ids((1, 3 * N)))
    assert match is not None and match.length == 2 * N


@pytest.mark.parametrize(("size", "fits"), [(RAM // 4, True), (RAM // 4 + 1, False)])
def test_a_checkpoint_leaves_room_for_others(size: int, fits: bool) -> None:
    bench = Bench()
    bench.context.sequence_bytes = size
    sequence = sequence_of(ids((1, N)))
    sequence.seq_id, sequence.num_computed = 4, N
    assert bench.restorer.fits_ram(4) is fits
    bench.restorer.save_checkpoint(sequence)
    assert bench.context.called("save") == [4] * fits


# What is fetched


def test_a_waiting_prompt_is_looked_for_once_per_version_of_the_cache() -> None:
    bench = Bench()
    sequence = sequence_of(ids((2, N + 1)))
    for _ in range(3):
        assert not bench.restorer.is_fetching(sequence, 0)
    assert bench.states.matches == 1
    bench.keep(ids((1, N)))
    for _ in range(3):
        assert not bench.restorer.is_fetching(sequence, 0)
    assert bench.states.matches == 2, "a state that came may be the one"
    bench.restorer.is_fetching(sequence, 5)
    assert bench.states.matches == 3, "as may one for a sequence that has other tokens by now"
    bench.restorer.forget(sequence)
    bench.restorer.is_fetching(sequence, 5)
    assert bench.states.matches == 4


def test_a_state_on_disk_is_waited_for() -> None:
    bench = Bench()
    bench.keep(ids((1, N)))
    pending: Future[SavedState | None] = Future()
    bench.states.pending = pending
    sequence, other = sequence_of(ids((1, N + 9))), sequence_of(ids((2, N)))
    assert bench.restorer.is_fetching(sequence, 0)
    assert not bench.restorer.is_fetching(other, 0)
    assert (bench.restorer.num_fetched(sequence), bench.restorer.num_fetched(other)) == (N, 0)
    assert bench.restorer.is_reading
    assert bench.fetched == 0
    pending.set_result(SavedState(ids((1, N)), np.zeros(1, np.uint8)))
    assert bench.fetched == 1
    assert not bench.restorer.is_reading
    assert not bench.restorer.is_fetching(sequence, 0)
    assert bench.restore(sequence) == N
    assert bench.restorer.num_fetched(sequence) == 0
    assert bench.states.matches == 2, "each was looked for once"


def test_a_fetch_is_dropped_once_the_kv_cache_has_the_prefix() -> None:
    bench = Bench()
    bench.keep(ids((1, 2 * N)))
    pending: Future[SavedState | None] = Future()
    bench.states.pending = pending
    first, second = (sequence_of(ids((1, 2 * N + 9))) for _ in range(2))
    assert bench.restorer.is_fetching(first, 0)
    assert bench.restorer.is_fetching(second, 0)
    assert not bench.restorer.is_fetching(second, 2 * N)
    assert bench.restorer.num_fetched(second) == 0
    assert not pending.cancelled(), "the first one waits for it"
    assert not bench.restorer.is_fetching(first, N + 1)
    assert pending.cancelled()


class Disk:
    """A restorer over states on disk: of N tokens 0, of N tokens 1, …"""

    def __init__(self, folder: Path, *, ram: int, tokens: int, size: int = 100) -> None:
        files = StateFiles(folder, "key", 1 << 20)
        for token in range(tokens):
            assert files.write(ids((token, N)), np.zeros(size, np.uint8))
        self.bench = Bench()
        context: Any = self.bench.context
        self.states = ReadLater(ram, files)
        self.restorer = StateRestorer(self.states, context, self.bench.cells, self.bench.cache)

    def waiting(self, token: int) -> Sequence:
        sequence = sequence_of(ids((token, N + 9)))
        sequence.seq_id = token
        return sequence


FILE_BYTES = 56 + 4 * N + 100


@pytest.mark.parametrize(
    ("ram", "at_once"), [(0, 1), (FILE_BYTES, 1), (2 * FILE_BYTES - 1, 1), (2 * FILE_BYTES, 2), (1 << 20, 4)]
)
def test_fetched_states_that_wait_are_no_more_than_the_ram_holds(
    tmp_path: Path, ram: int, at_once: int
) -> None:
    disk = Disk(tmp_path, ram=ram, tokens=4)
    waiting = [disk.waiting(token) for token in range(4)]
    for _ in range(2):
        assert [disk.restorer.is_fetching(sequence, 0) for sequence in waiting] == [True] * 4
        assert disk.states.started == list(range(at_once))
    disk.states.end_one()
    assert [disk.restorer.is_fetching(sequence, 0) for sequence in waiting] == [False, True, True, True]
    assert disk.states.started == list(range(at_once)), "the first is read and not restored yet"
    assert disk.restorer.restore(waiting[0], 0, disk.bench.make_room) == N
    for sequence in waiting[1:]:
        assert disk.restorer.is_fetching(sequence, 0)
    assert disk.states.started == list(range(min(4, at_once + 1)))


def test_a_state_in_ram_waits_for_no_other(tmp_path: Path) -> None:
    disk = Disk(tmp_path, ram=FILE_BYTES, tokens=2)
    first, second = disk.waiting(0), disk.waiting(9)
    assert disk.restorer.is_fetching(first, 0)
    disk.states.put(ids((9, N)), np.zeros(10, np.uint8))
    disk.restorer.is_fetching(second, 0)
    assert disk.states.started == [0, 9]


@pytest.mark.parametrize("why", ["scores", "resumed"])
def test_a_sequence_that_needs_its_own_cells_fetches_nothing(why: str) -> None:
    bench = Bench()
    bench.keep(ids((1, N)))
    sequence = sequence_of(ids((1, N + 9)))
    if why == "scores":
        sequence.state.request = msgspec.structs.replace(sequence.state.request, prompt_logprobs=1)
    else:
        state: Any = object()
        sequence.resumed = state
    assert not bench.restorer.is_fetching(sequence, 0)
    assert (bench.restorer.num_fetched(sequence), bench.states.matches) == (0, 0)


# What is restored


@pytest.mark.parametrize(
    ("kept", "common", "num_cached", "restored"),
    [
        (ids((1, N)), N, 0, N),
        (ids((1, N)), N, 1, 0),  # less than MIN_TOKENS more
        (ids((1, 20), (2, 1000)), 20, 0, 0),  # less than a sixteenth of it
        (ids((1, 20), (2, 1000)), 70, 0, 70),
        (ids((1, 20), (2, 1000)), 170, 120, 0),
        (ids((1, 20), (2, 1000)), 190, 120, 190),
    ],
)
def test_few_tokens_are_not_worth_a_large_state(
    kept: Tokens, common: int, num_cached: int, restored: int
) -> None:
    bench = Bench()
    bench.keep(kept)
    sequence = sequence_of(np.concatenate([kept[:common], ids((3, 5))]))
    assert bench.restore(sequence, num_cached) == restored
    assert bench.restorer.restored == bool(restored)
    assert bench.asked_for == [len(kept)] * bool(restored), "all of its cells for a moment"
    assert bench.context.called("truncate") == [7] * (0 < restored < len(kept))


def test_a_state_that_cannot_be_cut_is_restored_as_a_whole() -> None:
    bench = Bench(whole_only=True)
    bench.keep(ids((1, 2 * N)))
    assert bench.restore(sequence_of(ids((1, 2 * N)))) == 0, "its last token must be computed"
    assert bench.restore(sequence_of(ids((1, N), (2, N)))) == 0
    assert bench.restore(sequence_of(ids((1, 2 * N), (2, 5)))) == 2 * N


def test_a_sequence_may_have_grown_since_the_match() -> None:
    bench = Bench()
    bench.keep(ids((1, 3 * N)))
    sequence = sequence_of(ids((1, 2 * N)))
    assert not bench.restorer.is_fetching(sequence, 0)
    assert bench.restorer.num_fetched(sequence) == 2 * N - 1
    for _ in range(5):
        sequence.tokens.append(1)
    assert bench.restorer.restore(sequence, 0, bench.make_room) == 2 * N + 4


def test_a_state_ends_at_the_border_of_an_image() -> None:
    bench = Bench()
    tokens = ids((1, N), (-5, 12), (2, N))
    bench.keep(tokens[: N + 6])
    sequence = sequence_of(tokens)
    chunk = MediaChunk(
        start=N,
        end=N + 12,
        position=N,
        next_position=N + 4,
        positions=np.zeros((4, 12), np.int32),
        key=b"",
        piece=ImagePiece(width=1, height=1, digest="ab"),
        number=0,
    )
    sequence.media = PromptMedia([chunk])
    assert bench.restore(sequence) == N


@pytest.mark.parametrize("fault", ["file", "gone", "room", "context", "cut", "window"])
def test_a_restore_that_fails_costs_no_request(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.keep(ids((1, N), (2, N)))
    bench.context.restores = fault != "context"
    bench.context.truncates = fault != "cut"
    bench.context.reaches = fault != "window"
    if fault in ("file", "gone"):
        bench.states.pending = Future()
        if fault == "file":
            bench.states.pending.set_exception(OSError("the disk is gone"))
        else:
            bench.states.pending.set_result(None)
    sequence = sequence_of(ids((1, N), (3, 5)))
    sequence.seq_id = 7
    assert not bench.restorer.is_fetching(sequence, 0)
    assert bench.restorer.restore(sequence, 0, lambda _: fault != "room") == 0
    assert bench.restorer.restored == 0
    is_written = fault in ("context", "cut", "window")
    assert bench.context.called("restore") == [7] * is_written
    assert bench.context.called("remove") == [7] * (fault in ("cut", "window")), "it is empty again"
    assert ("a saved sequence was not read: the disk is gone" in caplog.text) is (fault == "file")
    bench.states.pending = None
    assert bench.restorer.num_fetched(sequence) == 0
