"""StateCache: the longest prefix wins, budgets hold, what leaves RAM reaches the disk."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from jan_serve.engine.cache.state_cache import MIN_TOKENS, SavedState, StateCache
from jan_serve.engine.cache.state_files import StateFile, StateFiles, file_bytes
from jan_serve.engine.llama.context import SequenceBytes
from jan_serve.engine.tokens import Tokens

N = MIN_TOKENS


def ids(*parts: tuple[int, int]) -> Tokens:
    """Runs of one token each: (token, count)."""
    return np.concatenate([np.full(count, token, np.int32) for token, count in parts])


def state(fill: int, size: int = 100) -> SequenceBytes:
    return np.full(size, fill, np.uint8)


def found(cache: StateCache, prompt: Tokens) -> tuple[int, int] | None:
    """Length of the match and what the state was filled with."""
    match = cache.match(prompt)
    if match is None:
        return None
    kept = cache.fetch(match).result()
    return (match.length, -1 if kept is None else int(kept.data[0]))


class HeldFiles(StateFiles):
    """Counts reads, and holds them while a test wants it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, "key", 1 << 20)
        self.num_reads = 0
        self._may_read = threading.Event()
        self._may_read.set()

    @contextmanager
    def held(self) -> Generator[None]:
        self._may_read.clear()
        try:
            yield
        finally:
            self._may_read.set()

    def read(self, file: StateFile) -> SequenceBytes | None:
        self.num_reads += 1
        self._may_read.wait()
        return super().read(file)


def files_of(root: Path, *kept: tuple[int, int]) -> HeldFiles:
    """Files of states of N tokens each: (token, bytes)."""
    files = HeldFiles(root)
    for token, size in kept:
        assert files.write(ids((token, N)), state(token, size))
    return files


@pytest.mark.parametrize(
    ("kept", "prompt", "expected"),
    [
        ([], ids((1, N + 1)), None),
        ([ids((1, N))], ids((2, N + 1)), None),
        ([ids((1, N))], ids((1, N), (2, 5)), (N, 0)),
        ([ids((1, N - 1))], ids((1, N), (2, 5)), None),
        ([ids((1, N), (3, 9))], ids((1, N), (2, 5)), (N, 0)),
        ([ids((1, N)), ids((1, N), (2, 3))], ids((1, N), (2, 5)), (N + 3, 1)),
        # One token is left to compute.
        ([ids((1, N + 1))], ids((1, N + 1)), (N, 0)),
    ],
)
def test_the_longest_usable_prefix(
    kept: list[Tokens], prompt: Tokens, expected: tuple[int, int] | None
) -> None:
    cache = StateCache(10_000)
    for number, tokens in enumerate(kept):
        cache.put(tokens, state(number))
    assert found(cache, prompt) == expected


def test_states_that_cannot_be_cut_are_used_whole() -> None:
    cache = StateCache(10_000, whole_only=True)
    cache.put(ids((1, N)), state(0))
    cache.put(ids((1, N), (3, 9)), state(1))
    assert found(cache, ids((1, N), (2, 5))) == (N, 0)
    assert found(cache, ids((1, N), (3, 9))) == (N, 0), "its last token must be computed"
    assert found(cache, ids((1, N), (3, 10))) == (N + 9, 1)


def test_a_longer_state_takes_the_place_of_its_beginning() -> None:
    cache = StateCache(10_000)
    cache.put(ids((1, N)), state(0))
    cache.put(ids((1, 2 * N)), state(1))
    assert cache.ram_used == 100
    assert found(cache, ids((1, N), (2, 5))) == (N, 1)


def test_the_budget_of_the_ram_holds_and_the_recently_used_stays() -> None:
    cache = StateCache(250)
    for token in (1, 2):
        cache.put(ids((token, N)), state(token))
    assert found(cache, ids((1, N + 1))) == (N, 1)
    cache.put(ids((3, N)), state(3))
    assert cache.ram_used == 200
    assert [found(cache, ids((t, N + 1))) is not None for t in (1, 2, 3)] == [True, False, True]


def test_what_leaves_the_ram_is_found_on_disk(tmp_path: Path) -> None:
    cache = StateCache(150, StateFiles(tmp_path, "key", 1 << 20))
    cache.put(ids((1, N)), state(1))
    cache.put(ids((2, N)), state(2))
    cache.flush(10.0)
    later = StateCache(1000, StateFiles(tmp_path, "key", 1 << 20))
    assert [found(later, ids((t, N + 1))) for t in (1, 2)] == [(N, 1), (N, 2)]
    assert later.ram_used == 200, "what was read stays in RAM"


def test_a_flush_writes_nothing_twice_and_gives_up_what_is_covered(tmp_path: Path) -> None:
    for count in (N, N, 2 * N, N):
        cache = StateCache(1000, StateFiles(tmp_path, "key", 1 << 20))
        cache.put(ids((1, count)), state(1))
        cache.flush(10.0)
    assert [len(file.tokens) for file in StateFiles(tmp_path, "key", 1 << 20)] == [2 * N]


def test_a_damaged_state_is_none(tmp_path: Path) -> None:
    first = StateCache(1000, StateFiles(tmp_path, "key", 1 << 20))
    first.put(ids((1, N)), state(1))
    first.flush(10.0)
    cache = StateCache(1000, StateFiles(tmp_path, "key", 1 << 20))
    match = cache.match(ids((1, N + 1)))
    assert match is not None
    [path] = tmp_path.glob("*/*.state")
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert cache.fetch(match).result() is None
    assert cache.match(ids((1, N + 1))) is None


def test_clear_forgets_ram_and_disk(tmp_path: Path) -> None:
    cache = StateCache(100, StateFiles(tmp_path, "key", 1 << 20))
    for token in (1, 2):
        cache.put(ids((token, N)), state(token))
    cache.clear()
    assert [found(cache, ids((t, N + 1))) for t in (1, 2)] == [None, None]
    assert list(tmp_path.glob("*/*.state")) == []


def test_a_kept_state_does_not_follow_its_source() -> None:
    cache = StateCache(1000)
    tokens = ids((1, N))
    cache.put(tokens, state(1))
    tokens[:] = 9
    match = cache.match(ids((1, N + 1)))
    assert match is not None and isinstance(match.source, SavedState)


def test_a_flush_waits_for_what_was_on_its_way(tmp_path: Path) -> None:
    cache = StateCache(100, StateFiles(tmp_path, "key", 1 << 30))
    for token in range(1, 4):
        cache.put(ids((token, N)), state(token))
    cache.flush(30.0)
    assert len(list(StateFiles(tmp_path, "key", 1 << 30))) >= 2
    assert not list(tmp_path.glob("*/*.partial"))


@pytest.mark.parametrize("ram", [0, 1000])
def test_a_file_is_read_once_for_all_who_wait_for_it(tmp_path: Path, ram: int) -> None:
    files = files_of(tmp_path, (1, 100))
    cache = StateCache(ram, files)
    match = cache.match(ids((1, N + 1)))
    assert match is not None
    with files.held():
        first, second = cache.fetch(match), cache.fetch(match)
    kept = first.result()
    assert second.result() is kept and kept is not None
    assert cache.fetch(match).result() is kept, "while someone holds it"
    assert files.num_reads == 1
    del first, second
    assert cache.fetch(match).result() is not None
    assert files.num_reads == 2, "the file, not its future, is the cache"


def test_a_cancelled_read_begins_again(tmp_path: Path) -> None:
    files = files_of(tmp_path, (1, 100), (2, 100))
    cache = StateCache(0, files)
    first, second = cache.match(ids((1, N + 1))), cache.match(ids((2, N + 1)))
    assert first is not None and second is not None
    with files.held():
        running, queued = cache.fetch(first), cache.fetch(second)
        assert queued.cancel()
        again = cache.fetch(second)
    assert running.result() is not None
    assert again.result() is not None


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_state_larger_than_the_ram_displaces_no_others(tmp_path: Path, *, on_disk: bool) -> None:
    files = StateFiles(tmp_path, "key", 1 << 20) if on_disk else None
    cache = StateCache(250, files)
    cache.put(ids((1, N)), state(1))
    cache.put(ids((2, N)), state(2))
    cache.put(ids((1, 2 * N)), state(3, 251))
    assert cache.ram_used == 200
    assert found(cache, ids((1, N + 1))) == (N, 1), "nor the one that it covers"
    cache.flush(10.0)
    kept = {len(file.tokens) for file in StateFiles(tmp_path, "key", 1 << 20)}
    assert kept == ({N, 2 * N} if on_disk else set())


def test_reading_a_state_larger_than_the_ram_displaces_no_others(tmp_path: Path) -> None:
    cache = StateCache(250, files_of(tmp_path, (1, 251), (2, 200)))
    cache.put(ids((3, N)), state(3))
    assert found(cache, ids((1, N + 1))) == (N, 1)
    assert cache.ram_used == 100
    assert found(cache, ids((2, N + 1))) == (N, 2)
    assert cache.ram_used == 200, "one that fits takes the place of the oldest"


def test_a_flush_writes_the_most_recent_states_that_the_disk_may_hold(tmp_path: Path) -> None:
    size = file_bytes(N, 100)
    cache = StateCache(1000, StateFiles(tmp_path, "key", 2 * size + 50))
    for token in range(1, 4):
        cache.put(ids((token, N)), state(token))
    cache.put(ids((4, N)), state(4, 3 * size))
    cache.flush(10.0)
    assert sorted(int(file.tokens[0]) for file in StateFiles(tmp_path, "key", 1 << 20)) == [2, 3]


def test_a_lack_of_threads_costs_no_state_and_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    cache = StateCache(0, StateFiles(tmp_path, "key", 1 << 20))
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    cache.put(ids((1, N)), state(7))
    cache.flush(60.0)
    assert len(StateFiles(tmp_path, "key", 1 << 20).index) == 1
