"""The hidden states that a head reads: the latest ones, each at its position."""

from __future__ import annotations

import numpy as np
import pytest

from jan_serve.engine.drafting.hidden_rows import WINDOW, HiddenRows
from jan_serve.engine.llama.context import Floats


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
