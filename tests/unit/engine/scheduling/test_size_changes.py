"""Whether steps are captured, told by the first steps of a size."""

from __future__ import annotations

import pytest

from jan_serve.engine.scheduling.size_changes import SizeChanges


def after(*runs: tuple[float, ...]) -> SizeChanges:
    """Runs of steps of one row, with another kind of step before each."""
    changes = SizeChanges()
    for run in runs:
        changes.interrupt()
        for seconds in run:
            changes.observe(1, seconds)
    return changes


SLOW, PLAIN = (3.0, 3.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(("slow", "share"), [(0, 0.0), (1, 0.0), (2, 0.0), (3, 2.0)])
def test_the_first_steps_after_a_change_must_agree(slow: int, share: float) -> None:
    """Four of four, or five of six."""
    assert after(*[SLOW] * slow, *[PLAIN] * (3 - slow)).share == share


def test_it_is_told_once_that_steps_are_captured() -> None:
    changes = after(SLOW)
    changes.interrupt()
    assert [changes.observe(1, seconds) for seconds in SLOW] == [False, False, False, True]
    changes.interrupt()
    assert not any(changes.observe(1, seconds) for seconds in SLOW)


def test_only_the_first_steps_of_a_size_are_settling() -> None:
    changes = after(SLOW, SLOW)
    found: list[bool] = []
    for rows in (4, 4, 4, 1, 1, 1):
        changes.observe(rows, 1.0)
        found.append(changes.is_settling)
    assert found == [True, True, False] * 2


def test_a_disturbed_third_step_does_not_hide_what_a_change_costs() -> None:
    assert after((3.0, 3.0, 4.0, 1.0), SLOW).share == 2.0


def test_a_deeper_context_after_a_prefill_is_no_change() -> None:
    assert after(*[(seconds,) * 4 for seconds in (1.0, 2.0, 3.0, 4.0, 5.0)]).share == 0.0
