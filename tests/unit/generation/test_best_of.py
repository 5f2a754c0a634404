"""Which choices win, and how they are numbered."""

from __future__ import annotations

import pytest

from jan_serve.core.events import Finished, TextDelta, TokenInfo
from jan_serve.generation.best_of import BestOf

TOKEN = TokenInfo(1, b"x")


@pytest.mark.parametrize(
    ("n", "scores", "winners"),
    [
        (1, [-3.0, -1.0, -2.0], [1]),
        (2, [-3.0, -1.0, -2.0], [1, 2]),
        (2, [-1.0, -1.0, -1.0], [0, 1]),
        (2, [None, -9.0, None], [1, 0]),
        (3, [-2.0, -1.0], [1, 0]),
    ],
)
def test_the_highest_mean_wins_and_ties_keep_their_order(
    n: int, scores: list[float | None], winners: list[int]
) -> None:
    best = BestOf(n, keep_tokens=False)
    for index, score in enumerate(scores):
        best.add(TextDelta(index, f"{index}"))
        best.add(Finished(index=index, reason="stop", mean_logprob=score))
    texts = [(event.index, event.text) for event in best.winners() if isinstance(event, TextDelta)]
    assert texts == list(enumerate(map(str, winners)))


@pytest.mark.parametrize("keep", [True, False])
def test_the_events_of_a_choice_stay_together_and_in_order(keep: bool) -> None:
    best = BestOf(1, keep_tokens=keep)
    events = [TextDelta(1, "a", (TOKEN,)), TextDelta(0, "z", (TOKEN,)), TextDelta(1, "b", (TOKEN,))]
    for event in events:
        best.add(event)
    best.add(Finished(index=0, reason="stop", mean_logprob=-2.0))
    best.add(Finished(index=1, reason="length", mean_logprob=-1.0))
    tokens = (TOKEN,) if keep else ()
    assert list(best.winners()) == [
        TextDelta(0, "a", tokens),
        TextDelta(0, "b", tokens),
        Finished(index=0, reason="length", mean_logprob=-1.0),
    ]
