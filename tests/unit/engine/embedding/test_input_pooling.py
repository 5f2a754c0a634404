"""Which tokens of which inputs a batch holds."""

from __future__ import annotations

import pytest

from jan_serve.engine.embedding.input_pooling import MAX_SEQUENCES, next_pieces, num_together


def test_whole_inputs_stay_within_a_small_batch() -> None:
    assert num_together([20, 30, 14, 1], 64) == 3


@pytest.mark.parametrize("room", [1, 3, 16, 128])
def test_all_tokens_are_read_once_and_in_order(room: int) -> None:
    lengths = [1, 40, 2, 2, 130, *[1] * 30]
    row = start = 0
    read: list[tuple[int, int]] = []
    while row < len(lengths):
        pieces = next_pieces(lengths, row, start, room)
        assert 0 < sum(piece.end - piece.start for piece in pieces) <= room
        # A sequence belongs to one input at a time.
        assert len({piece.row % MAX_SEQUENCES for piece in pieces}) == len(pieces)
        read += [(piece.row, place) for piece in pieces for place in range(piece.start, piece.end)]
        row, start = pieces[-1].row, pieces[-1].end
        if start == lengths[row]:
            row, start = row + 1, 0
    assert read == [(row, place) for row, length in enumerate(lengths) for place in range(length)]
