"""Which tokens of which inputs a batch holds."""

from __future__ import annotations

import pytest

from jan_serve.engine.embedding.input_pooling import MAX_SEQUENCES, TOGETHER, Piece, next_pieces, num_together


@pytest.mark.parametrize(
    ("lengths", "row", "start", "room", "pieces"),
    [
        ([5], 0, 0, 8, [(0, 0, 5)]),
        ([5], 0, 0, 5, [(0, 0, 5)]),
        ([5], 0, 0, 3, [(0, 0, 3)]),
        ([5], 0, 3, 3, [(0, 3, 5)]),
        ([5, 4, 3], 0, 3, 8, [(0, 3, 5), (1, 0, 4), (2, 0, 2)]),
        ([5, 4, 3], 1, 0, 4, [(1, 0, 4)]),
        ([5, 4, 3], 2, 2, 4, [(2, 2, 3)]),
        ([1] * 40, 3, 0, 99, [(row, 0, 1) for row in range(3, 3 + MAX_SEQUENCES)]),
    ],
)
def test_pieces_of_a_batch(
    lengths: list[int], row: int, start: int, room: int, pieces: list[tuple[int, int, int]]
) -> None:
    assert next_pieces(lengths, row, start, room) == [Piece(*piece) for piece in pieces]


@pytest.mark.parametrize(
    ("lengths", "count"),
    [
        ([5], 1),
        ([TOGETHER + 1, 1], 1),
        ([1, TOGETHER], 1),
        ([1, TOGETHER - 1, 1], 2),
        ([TOGETHER // 8] * MAX_SEQUENCES, 8),
        ([1] * MAX_SEQUENCES, MAX_SEQUENCES),
    ],
)
def test_whole_inputs_of_a_batch(lengths: list[int], count: int) -> None:
    assert num_together(lengths, 512) == count


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
