"""What a server does not count is absent from a row, and is no zero."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import load_rows
from benchmarks.figures import Figures
from benchmarks.load import Outcome, Timing
from benchmarks.report import medians
from benchmarks.servers import Running

STEPS = "jan_serve_engine_steps_total"
DRAFTED = "jan_serve_engine_model_drafted_tokens_total"
ACCEPTED = "jan_serve_engine_model_accepted_tokens_total"


class Counting(Running):
    """A server whose /metrics has these, one after the other."""

    def __init__(self, *counters: dict[str, float]) -> None:
        super().__init__("a server", "http://127.0.0.1:1", None, 0.0)
        self._counters: Iterator[dict[str, float]] = iter(counters)

    def counters(self) -> dict[str, float]:
        return next(self._counters)


@pytest.fixture
def own_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three measured bursts of one stream with 20 tokens each, 10 ms apart."""

    def burst(_base: str, jobs: list[object]) -> Outcome:
        return Outcome(1.0, [Timing(0.1, 0.3, 0.01, 20, 5, "")] * len(jobs))

    monkeypatch.setattr(load_rows, "burst", burst)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {}, {}),
        ({"llamacpp:n_decode_total": 5.0}, {"llamacpp:n_decode_total": 50.0}, {}),
        # A request for the counters that failed says nothing of the time between them.
        ({}, {STEPS: 90.0, DRAFTED: 9.0, ACCEPTED: 9.0}, {}),
        (
            {STEPS: 60.0, DRAFTED: 0.0, ACCEPTED: 0.0},
            {STEPS: 120.0, DRAFTED: 0.0, ACCEPTED: 0.0},
            {"steps": 1.0},
        ),
        (
            {STEPS: 60.0, DRAFTED: 8.0, ACCEPTED: 8.0},
            {STEPS: 75.0, DRAFTED: 48.0, ACCEPTED: 38.0},
            {"steps": 0.25, "accepted": 0.75},
        ),
    ],
)
@pytest.mark.usefixtures("own_head")
def test_steps_and_accepted_drafts_are_those_that_the_server_counts(
    before: dict[str, float], after: dict[str, float], expected: Figures
) -> None:
    assert load_rows.own_head(Counting(before, after), 1) == {"tokens_per_s": 100.0, **expected}


def test_the_median_of_a_figure_is_over_the_rounds_that_have_it() -> None:
    rounds: list[Figures] = [{"tokens_per_s": 1.0}, {"tokens_per_s": 3.0, "steps": 0.5}]
    assert medians({"jan-serve": {"mtp": rounds, "one-stream": []}}) == {
        "jan-serve": {"mtp": {"tokens_per_s": 2.0, "steps": 0.5}}
    }
