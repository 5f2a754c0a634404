"""PhaseClock: what another thread sees of the engine thread."""

from __future__ import annotations

from jan_serve.engine.phase import PhaseClock


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_new_clock_is_loading() -> None:
    clock = Clock()
    phase = PhaseClock(clock)
    clock.now += 2.5
    assert phase.read() == ("loading", 2.5, None)


def test_a_phase_counts_from_its_start_and_names_its_request() -> None:
    clock = Clock()
    phase = PhaseClock(clock)
    clock.now += 5
    phase.enter("sample", 42)
    clock.now += 1.5
    assert phase.read() == ("sample", 1.5, 42)
    phase.enter("idle")
    assert phase.read() == ("idle", 0.0, None)


def test_entering_the_same_phase_again_starts_it_anew() -> None:
    clock = Clock()
    phase = PhaseClock(clock)
    phase.enter("decode")
    clock.now += 9
    phase.enter("decode")
    assert phase.read() == ("decode", 0.0, None)


def test_a_phase_that_begins_between_two_reads_of_the_clock_lasts_no_negative_time() -> None:
    clock = Clock()
    phase = PhaseClock(clock)
    phase.enter("decode")
    clock.now -= 1
    assert phase.read() == ("decode", 0.0, None)
