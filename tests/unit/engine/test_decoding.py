"""The batch of a step: the row that each item samples from, and prefills that an abort interrupts."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jan_serve.engine.decoding import StepBatch
from jan_serve.engine.llama.context import DECODE_ABORTED, DECODE_OK
from jan_serve.engine.sequence import Draft, PlanItem, Sequence
from jan_serve.engine.stats import PhaseClock
from tests.unit.engine.fake_context import FakeContext, sequence_of


class Context(FakeContext):
    """Its decode calls `during`, and stops when its abort flag is set."""

    def __init__(self) -> None:
        super().__init__()
        self.abort_flag = threading.Event()
        self.during: Any = lambda: None

    def decode(self, batch: Any, meanwhile: Any = None) -> int:
        self.during()
        return DECODE_ABORTED if self.abort_flag.is_set() else super().decode(batch, meanwhile)


def batch_of(context: Any, *, adapters: Any = None, can_stop: bool = True) -> StepBatch:
    return StepBatch(context, adapters, PhaseClock(), can_stop=can_stop)


def sequence(length: int, computed: int = 0) -> Sequence:
    """One that prefills `length` tokens, or decodes if they are computed but for one."""
    made = sequence_of(np.arange(length, dtype=np.int32))
    made.num_computed = computed
    made.prefill_end = 0 if computed else length
    return made


def test_each_item_has_the_row_that_it_samples() -> None:
    batch = batch_of(Context())
    draft = Draft(np.array([7, 8, 9], np.int32), 3)
    plan = [
        PlanItem(sequence(10), 10, "last"),
        PlanItem(sequence(6, 5), 1, "last"),
        PlanItem(sequence(6, 5), 1, "last", draft),
        PlanItem(sequence(4), 3, "all"),
    ]
    assert batch.fill(plan) == [9, 10, 11, 17]
    assert batch.size == 18
    assert batch.fill(plan[:1]) == [9], "the batch before is gone"


@pytest.mark.parametrize(
    ("aborted", "can_stop", "item", "code"),
    [
        (1, True, PlanItem(sequence(10), 10, "last"), DECODE_ABORTED),
        (2, True, PlanItem(sequence(10), 10, "last"), DECODE_OK),
        (1, True, PlanItem(sequence(6, 5), 1, "last"), DECODE_OK),
        (1, False, PlanItem(sequence(10), 10, "last"), DECODE_OK),
    ],
    ids=["its prefill", "of another request", "a decode", "a memory that cannot be cut"],
)
def test_only_a_prefill_of_the_request_is_interrupted(
    aborted: int, *, can_stop: bool, item: PlanItem, code: int
) -> None:
    context = Context()
    batch = batch_of(context, can_stop=can_stop)
    context.during = lambda: batch.interrupt(aborted)
    batch.fill([item])
    assert batch.decode([item]) == code
    assert not context.abort_flag.is_set(), "the flag must not stop the next decode"
    batch.interrupt(aborted)
    assert not context.abort_flag.is_set(), "nothing runs"


def test_adapters_of_the_plan_and_images_in_place_of_tokens() -> None:
    context, item = Context(), PlanItem(sequence(10), 10, "last")
    applied: list[Any] = []

    def apply(_context: object, uses: Any) -> None:
        applied.append(uses)

    adapters = SimpleNamespace(apply=apply)
    media: Any = SimpleNamespace(size=5)
    assert batch_of(context, adapters=adapters).decode([item], media) == DECODE_OK
    assert applied == [item.sequence.request.adapters]
    assert context.called("decode") == [5]
