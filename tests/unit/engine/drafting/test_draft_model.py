"""The draft model's own cells: where they do not suffice, a sequence goes without drafts, and is not read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jan_serve.engine.drafting.draft_model import WINDOW, DraftModel, HiddenRows, NextTokenHead
from jan_serve.engine.drafting.drafter import Drafter
from jan_serve.engine.llama.context import Floats
from jan_serve.engine.scheduling.step_costs import StepCosts
from jan_serve.engine.sequence import Sequence
from tests.unit.engine.fake_context import FakeContext, sequence_of

NO_CELLS = 1
PROMPT = np.array([2, 3, 2], np.int32)


def draft_model(
    context: FakeContext, n_sequences: int = 1, *, n_tokens: int = 4, clock: Callable[[], float] = lambda: 0.0
) -> DraftModel:
    typed: Any = context
    return DraftModel(typed, n_sequences, n_tokens, clock=clock)


def test_a_token_that_the_large_model_does_not_have_ends_a_draft() -> None:
    assert draft_model(FakeContext(), n_tokens=1).draft(sequence_of(PROMPT), 3) is None


class SlowContext(FakeContext):
    """Each pass takes a second, the first one ten. is_sure: whether any token is probable."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.is_sure = True

    def decode(self, batch: Any, meanwhile: Any = None) -> int:
        self.now += 1.0 if self.called("decode") else 10.0
        return super().decode(batch, meanwhile)

    def logits(self, index: int) -> Any:
        return super().logits(index) if self.is_sure else np.zeros(4, np.float32)


def test_what_a_drafted_token_takes_is_learnt_without_the_first_pass_and_a_spike() -> None:
    context = SlowContext()
    model, sequence = draft_model(context, clock=lambda: context.now), sequence_of(PROMPT)
    assert model.token_s == 0.0
    for _ in range(6):
        model.draft(sequence, 3)
        sequence.tokens.append(3)
    assert model.token_s == pytest.approx(1.0)
    context.now += 100.0
    model.draft(sequence, 3)
    assert model.token_s == pytest.approx(1.0)


def test_passes_that_draft_nothing_make_tokens_dear_and_a_good_draft_makes_them_cheap_again() -> None:
    context = SlowContext()
    model, sequence = draft_model(context, clock=lambda: context.now), sequence_of(PROMPT)
    model.draft(sequence, 3)
    context.is_sure = False
    for _ in range(50):
        sequence.tokens.append(3)
        assert model.draft(sequence, 3) is None
    assert model.token_s == pytest.approx(32.0)
    context.is_sure = True
    model.draft(sequence, 3)
    assert model.token_s < 5.0


def test_a_step_reads_so_many_tokens_of_prompts_at_most() -> None:
    context = FakeContext()
    model = draft_model(context, 3)
    prompts = [sequence_of(np.full(400, 2, np.int32)) for _ in range(3)]

    def step() -> list[bool]:
        model.begin_step()
        return [model.draft(prompt, 1) is not None for prompt in prompts]

    assert step() == [True, True, False]
    assert step() == [True, True, True]
    assert max(context.called("decode")) == 400


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


def head_of(context: FakeContext) -> NextTokenHead:
    own: Any = context
    trunk: Any = FakeContext()
    return NextTokenHead(own, trunk, n_sequences=1, clock=lambda: 0.0)


def compute(head: NextTokenHead, sequence: Sequence) -> None:
    """As the engine does with all tokens but the newest one."""
    count = len(sequence.tokens) - 1 - sequence.num_computed
    sequence.num_computed += count
    head.observe(sequence, 0, count)


@pytest.fixture
def context() -> FakeContext:
    return FakeContext()


@pytest.fixture
def head(context: FakeContext) -> NextTokenHead:
    return head_of(context)


@pytest.fixture
def sequence(head: NextTokenHead) -> Sequence:
    sequence = sequence_of(PROMPT)
    compute(head, sequence)
    return sequence


def test_a_draft_reads_what_is_new_and_goes_on_from_its_own_states(
    context: FakeContext, head: NextTokenHead, sequence: Sequence
) -> None:
    drafted = head.draft(sequence, 2)
    assert drafted is not None and drafted.tolist() == [1, 1]
    sequence.tokens.append(1)
    compute(head, sequence)
    assert head.draft(sequence, 1) is not None
    assert context.called("decode") == [2, 1, 1]
    assert context.called("truncate") == [0], "the cells of the first draft"


def test_cells_that_cannot_be_cut_end_the_drafts_of_a_sequence(
    context: FakeContext, head: NextTokenHead, sequence: Sequence
) -> None:
    """Otherwise tokens that were only drafted would stay before those that came."""
    head.draft(sequence, 2)
    sequence.tokens.append(1)
    compute(head, sequence)
    context.truncates = False
    removed = len(context.called("remove"))
    for _ in range(2):
        assert head.draft(sequence, 2) is None
    assert context.called("decode") == [2, 1], "nothing more is read"
    assert len(context.called("remove")) == removed + 1
    context.truncates = True
    head.forget(sequence)
    compute(head, other := sequence_of(PROMPT))
    assert head.draft(other, 1) is not None, "its cells are free"


def test_a_draft_that_was_not_computed_is_made_again(
    context: FakeContext, head: NextTokenHead, sequence: Sequence
) -> None:
    """A step that was stopped leaves the sequence as it was; since then the head has read others."""
    for _ in range(2):
        drafted = head.draft(sequence, 2)
        assert drafted is not None and drafted.tolist() == [1, 1]
    assert context.called("decode") == [2, 1, 1, 1], "the newest token is read again"


def rows_of(first: int, end: int) -> Floats:
    """Each row has the number of its position."""
    return np.repeat(np.arange(first, end, dtype=np.float32)[:, None], 3, axis=1)


@pytest.mark.parametrize("size", [1, 3, WINDOW - 1, WINDOW, WINDOW + 1, 5 * WINDOW])
def test_rows_stay_at_their_positions(size: int) -> None:
    rows, end = HiddenRows(3), 0
    while end < 7 * WINDOW:
        rows.append(end, rows_of(end, end + size))
        end += size
        assert rows.end == end and rows.end - rows.start >= min(end, WINDOW)
        assert (rows.view(rows.start, end) == rows_of(rows.start, end)).all()


def test_a_gap_drops_what_was_before() -> None:
    rows = HiddenRows(3)
    rows.append(0, rows_of(0, 10))
    rows.append(12, rows_of(12, 14))
    assert (rows.start, rows.end) == (12, 14)
    assert (rows.view(13, 14) == rows_of(13, 14)).all()
