"""prefill_budget: what the pacer hears of streams, of prompts, and of who came together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jan_serve.engine.scheduling.prefill_budget import prefill_budget
from jan_serve.engine.scheduling.prefill_costs import CachePosition
from jan_serve.engine.sequence import Sequence
from tests.unit.engine.fake_context import sequence_of


class Listening:
    """A pacer that notes what it is told."""

    def prefill_tokens(self, num_streams: int, num_prefilling: int, place: CachePosition, **rest: Any) -> int:
        self.told = {"num_streams": num_streams, "num_prefilling": num_prefilling, "place": place} | rest
        return 7


def prompt(length: int, *, arrived: float, computed: int = 0) -> Sequence:
    sequence = sequence_of(np.zeros(length, np.int32))
    sequence.prefill_end, sequence.num_computed, sequence.state.arrived = length, computed, arrived
    return sequence


def stream(num_generated: int, *, first_token: float) -> Sequence:
    sequence = prompt(10, arrived=0.0, computed=10)
    sequence.num_generated, sequence.state.first_token = num_generated, first_token
    return sequence


def told(*turn: Sequence) -> dict[str, Any]:
    pacer: Any = Listening()
    assert prefill_budget(pacer, turn, cells=300) == 7
    return pacer.told


def test_who_decodes_and_what_is_prefilled() -> None:
    heard = told(stream(9, first_token=1.0), prompt(100, arrived=2.0, computed=40), prompt(50, arrived=3.0))
    assert (heard["num_streams"], heard["num_prefilling"]) == (1, 2)
    assert heard["place"] == CachePosition(40, 300), "of the first prompt that is read"
    assert heard["available"] == 110


@pytest.mark.parametrize(("num_generated", "late"), [(1, 160), (7, 160), (8, None)])
def test_streams_have_begun_with_a_few_tokens(num_generated: int, late: int | None) -> None:
    prompts = prompt(100, arrived=2.0, computed=40), prompt(100, arrived=3.0)
    assert (
        told(stream(1, first_token=1.0), stream(num_generated, first_token=1.0), *prompts)["late_tokens"]
        == late
    )


@pytest.mark.parametrize(
    ("first_tokens", "num_generated", "together"),
    [
        ((1.0,), 1, 0),
        ((2.0,), 1, 60),
        ((2.5, 1.0), 1, 60),
        ((1.0, 3.0), 1, 160),
        ((1.0, 3.0), 3, 160),
        ((1.0, 3.0), 4, 0),  # said more than the first
    ],
)
def test_prompts_came_together_with_streams_whose_first_token_they_waited_for(
    first_tokens: tuple[float, ...], num_generated: int, together: int
) -> None:
    streams = [stream(num_generated, first_token=at) for at in first_tokens]
    prompts = prompt(100, arrived=2.0, computed=40), prompt(100, arrived=3.0)
    assert told(*streams, *prompts)["together_tokens"] == together


def test_nothing_to_read_or_nobody_beside_it() -> None:
    assert told(stream(1, first_token=1.0))["together_tokens"] == 0
    alone = told(prompt(100, arrived=2.0))
    assert (alone["num_streams"], alone["late_tokens"], alone["together_tokens"]) == (0, 100, 0)
    assert told()["place"] == CachePosition(0, 300)
