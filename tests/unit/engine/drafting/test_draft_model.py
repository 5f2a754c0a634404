"""The draft model's own cells: where they do not suffice, a sequence goes without drafts, and is not read again."""

from __future__ import annotations

from typing import Any

import numpy as np

from jan_serve.engine.drafting.draft_model import DraftModel
from jan_serve.engine.drafting.drafter import Drafter
from jan_serve.engine.scheduling.step_costs import StepCosts
from tests.unit.engine.fake_context import FakeContext, sequence_of

NO_CELLS = 1
PROMPT = np.array([2, 3, 2], np.int32)


def draft_model(context: FakeContext, n_sequences: int = 1) -> DraftModel:
    typed: Any = context
    return DraftModel(typed, n_sequences, clock=lambda: 0.0)


def test_a_draft_is_what_the_model_goes_on_with() -> None:
    model = draft_model(FakeContext())
    drafted = model.draft(sequence_of(PROMPT), 3)
    assert drafted is not None and drafted.tolist() == [1, 1, 1]


def test_a_sequence_without_room_is_given_up() -> None:
    context = FakeContext()
    model, sequence = draft_model(context), sequence_of(PROMPT)
    context.decode_codes = [NO_CELLS]
    assert model.draft(sequence, 3) is None
    assert context.called("remove") == [0]
    decoded = len(context.called("decode"))
    assert model.draft(sequence, 3) is None
    assert len(context.called("decode")) == decoded, "not read again"
    other = sequence_of(PROMPT)
    assert model.draft(other, 1) is not None, "its cells are another's"


def test_room_that_ends_within_a_draft() -> None:
    context = FakeContext()
    model, sequence = draft_model(context), sequence_of(PROMPT)
    context.decode_codes = [0, NO_CELLS]
    assert model.draft(sequence, 3) is None
    assert context.called("remove") == [0]


def test_a_sequence_that_is_put_back_is_forgotten() -> None:
    """Preempted, it comes back as if it were new: with cells of its own, also where there had been no room for it."""
    context = FakeContext()
    model, sequence = draft_model(context), sequence_of(PROMPT)
    drafter = Drafter(StepCosts(), "off", model, longest=100)
    context.decode_codes = [NO_CELLS]
    assert model.draft(sequence, 1) is None
    drafter.forget(sequence)
    assert model.draft(sequence, 1) is not None
    drafter.forget(sequence)
    assert context.called("remove") == [0, 0]
    assert model.draft(sequence_of(PROMPT), 1) is not None, "its cells are free"
