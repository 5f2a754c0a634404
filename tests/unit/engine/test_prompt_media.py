"""Cells and positions around images, borders, and placeholders."""

from __future__ import annotations

import numpy as np
import pytest

from jan_serve.core.messages import ImagePiece
from jan_serve.engine.prompt_media import MediaChunk, PromptMedia, chunk_key, placeholders

PIECE = ImagePiece(width=1, height=1, digest="ab")


def chunk(start: int, end: int, position: int, next_position: int) -> MediaChunk:
    return MediaChunk(
        start=start,
        end=end,
        position=position,
        next_position=next_position,
        positions=np.zeros((4, end - start), np.int32),
        key=b"",
        piece=PIECE,
        number=0,
    )


# Three tokens, an image of 12 cells and 4 positions, two tokens, one of 10 cells and 10 positions, tokens.
MEDIA = PromptMedia([chunk(3, 15, 3, 7), chunk(17, 27, 9, 19)])


@pytest.mark.parametrize(
    ("index", "position", "cut", "border"),
    [
        (0, 0, 0, 3),
        (2, 2, 2, 3),
        (3, 3, 3, 15),
        (4, 3, 3, 15),
        (14, 3, 3, 15),
        (15, 7, 15, 17),
        (16, 8, 16, 17),
        (17, 9, 17, 27),
        (26, 9, 17, 27),
        (27, 19, 27, None),
        (30, 22, 30, None),
    ],
)
def test_positions_and_borders(index: int, position: int, cut: int, border: int | None) -> None:
    assert (MEDIA.position(index), MEDIA.cut(index), MEDIA.next_border(index)) == (position, cut, border)
    inside = MEDIA.chunk_at(index)
    assert (inside is not None) == (3 <= index < 15 or 17 <= index < 27)


def test_placeholders_are_no_tokens_and_hold_the_whole_digest() -> None:
    keys = [chunk_key(projector, piece, number) for projector in "ab" for piece in "cd" for number in (0, 1)]
    rows = [placeholders(key, 9) for key in keys]
    assert all((row < 0).all() for row in rows)
    assert len({row.tobytes() for row in rows}) == len(keys)
    assert all((placeholders(key, 9) == row).all() for key, row in zip(keys, rows, strict=True))
    assert (placeholders(keys[0], 20)[:9] == rows[0]).all()


def test_too_few_cells_for_the_digest_are_shared_with_no_other_prompt() -> None:
    key = chunk_key("a", "b", 0)
    few = [placeholders(key, 8) for _ in range(2)]
    assert (few[0] < 0).all() and (few[0] != few[1]).any()
