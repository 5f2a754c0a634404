"""The head's own cells: what a draft left in them is never taken for the sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jan_serve.engine.drafting.next_token_head import WINDOW, HiddenRows, NextTokenHead
from jan_serve.engine.llama.context import Floats
from jan_serve.engine.sequence import Sequence
from tests.unit.engine.fake_context import FakeContext, sequence_of

PROMPT = np.array([2, 3, 2], np.int32)


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
