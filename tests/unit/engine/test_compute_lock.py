"""Teams exclude each other by their sizes, let each other in, and end with their processes."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from jan_serve.engine import compute_lock as module
from jan_serve.engine.compute_lock import ComputeLock

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nobody waits there")

LARGE, SMALL = 3, 2  # threads, of four cores


class Clock:
    """Time that passes only as told; sleeps are counted and take no time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept = 0.0
        self.during_sleep: Callable[[], None] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.now += seconds
        self.during_sleep()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    monkeypatch.setattr(module, "usable_cores", lambda: 4)
    return found


def is_locked(path: Path) -> bool:
    import fcntl

    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released when a team finds a lock taken: from then on it waits."""
    import fcntl

    found, flock = threading.Semaphore(0), fcntl.flock

    def counted(file: int, mode: int) -> None:
        try:
            flock(file, mode)
        except BlockingIOError:
            found.release()
            raise

    monkeypatch.setattr(fcntl, "flock", counted)
    return found


def waiting(
    turns: ComputeLock, refusals: threading.Semaphore, then: Callable[[], object]
) -> threading.Thread:
    """A thread that waits for its turn, has it, and ends."""

    def run() -> None:
        with turns:
            then()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert refusals.acquire(timeout=30)
    return thread


def ended(thread: threading.Thread) -> None:
    thread.join(timeout=30)
    assert not thread.is_alive()


@pytest.mark.parametrize(("first", "second"), [(LARGE, LARGE), (LARGE, SMALL), (SMALL, LARGE)])
def test_two_teams_that_are_too_large_for_the_cores_wait_for_each_other(
    first: int, second: int, refusals: threading.Semaphore, tmp_path: Path
) -> None:
    one, two, log = ComputeLock(first, tmp_path), ComputeLock(second, tmp_path), list[str]()
    with one:
        thread = waiting(two, refusals, lambda: log.append("second"))
        log.append("first")
    ended(thread)
    assert log == ["first", "second"]
    assert two.is_contended and not one.is_contended


def test_a_team_that_waits_goes_before_one_that_asks_again(
    refusals: threading.Semaphore, tmp_path: Path
) -> None:
    one, two, log = ComputeLock(LARGE, tmp_path), ComputeLock(LARGE, tmp_path), list[str]()
    with one:
        thread = waiting(two, refusals, lambda: log.append("two"))
    with one:
        log.append("one")
    ended(thread)
    assert log == ["two", "one"]


LOOKS = 0.03
"""Seconds of looks at free cores that end a rest."""


@pytest.mark.parametrize(
    ("seconds", "others", "rest"),
    [(0.05, 5.0, 0.0), (0.5, 5.0, 0.5), (30.0, 5.0, 1.0), (30.0, 0.3, 0.3 + LOOKS), (0.5, 0.0, LOOKS)],
    ids=["short", "long", "very long", "the others end", "the others have ended"],
)
def test_a_long_turn_at_whose_end_others_wait_is_followed_by_a_rest(
    seconds: float,
    others: float,
    rest: float,
    clock: Clock,
    refusals: threading.Semaphore,
    tmp_path: Path,
) -> None:
    one, two = ComputeLock(LARGE, tmp_path), ComputeLock(LARGE, tmp_path)
    begun, may_end = threading.Event(), threading.Event()

    def compute() -> None:
        begun.set()
        assert may_end.wait(30)

    with one:
        thread = waiting(two, refusals, compute)
        clock.now += seconds
    assert begun.wait(30)
    end = clock.now + min(others, rest - LOOKS / 9)

    def end_others() -> None:
        if clock.now >= end:
            may_end.set()
            ended(thread)

    clock.during_sleep = end_others
    end_others()
    for _ in range(2):
        with one:
            clock.now += seconds
    assert clock.slept == pytest.approx(rest, abs=LOOKS / 2), "once: nobody waits the second time"


def test_a_team_that_waited_itself_does_not_rest(
    clock: Clock, refusals: threading.Semaphore, tmp_path: Path
) -> None:
    one, two = ComputeLock(LARGE, tmp_path), ComputeLock(LARGE, tmp_path)

    def compute() -> None:
        clock.now += 0.5

    with one:
        thread = waiting(two, refusals, compute)
    ended(thread)
    with two:
        pass
    assert clock.slept == 0.0


@pytest.mark.parametrize(("seconds", "rest"), [(0.05, 0.0), (0.5, LOOKS)], ids=["short", "long"])
def test_a_team_that_lets_others_go_first_waits_for_those_who_come_after_a_long_turn(
    seconds: float, rest: float, clock: Clock, tmp_path: Path
) -> None:
    turns = ComputeLock(LARGE, tmp_path, others_first=True)
    for _ in range(2):
        with turns:
            clock.now += seconds
    assert clock.slept == pytest.approx(rest)


def test_a_turn_ends_with_an_error(tmp_path: Path) -> None:
    turns = ComputeLock(LARGE, tmp_path)
    with pytest.raises(ValueError, match="no"), turns:
        raise ValueError("no")
    assert not is_locked(tmp_path / "cores.lock")


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    ComputeLock(LARGE, folder)
    assert {oct(path.stat().st_mode & 0o777) for path in folder.iterdir()} == {"0o600"}


@pytest.mark.parametrize("refused", [1, 2])
def test_a_file_system_without_locks_ends_the_turns(
    refused: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import fcntl

    one, flock, calls = ComputeLock(LARGE, tmp_path), fcntl.flock, list[int]()

    def refusing(file: int, mode: int) -> None:
        calls.append(mode)
        if len(calls) >= refused:
            raise OSError(errno.ENOLCK, "No locks available")
        flock(file, mode)

    monkeypatch.setattr(fcntl, "flock", refusing)
    for _ in range(2):
        with one:
            assert not one.is_contended
    assert len(calls) == refused and caplog.text.count("No locks available") == 1
    monkeypatch.undo()
    assert not is_locked(tmp_path / "gate.lock")


def test_without_files_nobody_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    teams = [ComputeLock(LARGE, None), ComputeLock(LARGE, None), ComputeLock(LARGE, tmp_path / "file")]
    with teams[0], teams[1], teams[2]:
        assert not any(team.is_contended for team in teams)
    assert "do not take turns" in caplog.text
