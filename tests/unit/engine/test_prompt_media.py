"""Cells and positions around images, borders, and placeholders."""

from __future__ import annotations

import numpy as np
import pytest

from jan_serve.core.messages import AudioPiece, ImagePiece, MediaPiece
from jan_serve.engine.llama.projector import Layout, MediaPart, Projector
from jan_serve.engine.prompt_media import (
    MediaChunk,
    MediaLayout,
    PromptMedia,
    PromptPart,
    chunk_key,
    placeholders,
)
from jan_serve.errors import InvalidRequest, UnsupportedContent

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


OPEN, CLOSE = 1000, 1001


class Tiles(Projector):
    """An image is a tile of 3 cells for each row of pixels, and an overview of 12 cells and 4 positions, in tokens. A
    sound is 10 cells of one component."""

    def __init__(self, *, sees: bool = True, hears: bool = True, is_causal: bool = True) -> None:
        self.sees, self.hears, self.is_causal = sees, hears, is_causal
        self.longest_sound = None

    def layout(self, piece: MediaPiece) -> Layout:
        if isinstance(piece, AudioPiece):
            return (MediaPart(0, 10, 10, np.arange(10, dtype=np.int32)[None], np.ones((1, 1), np.int32)),)
        along = np.arange(12, dtype=np.int32)
        overview = np.stack((np.zeros(12, np.int32), along // 4, along % 4, np.zeros(12, np.int32)))
        tiles = [
            MediaPart(
                number, 3, 3, np.repeat(along[None, :3], 4, axis=0), np.array([[1], [1], [1], [0]], np.int32)
            )
            for number in range(piece.height)
        ]
        steps = np.array([[1], [1], [1], [0]], np.int32)
        return ((OPEN,), *tiles, MediaPart(piece.height, 12, 4, overview, steps), (CLOSE, CLOSE))


def image(name: str = "a", width: int = 5, height: int = 1) -> ImagePiece:
    return ImagePiece(width=width, height=height, digest=name)


SOUND = AudioPiece(digest="s", frames=4)


@pytest.mark.parametrize(
    ("projector", "piece", "words"),
    [
        (None, image(), "cannot see"),
        (None, SOUND, "cannot hear"),
        (Tiles(sees=False), image(), "cannot see"),
        (Tiles(hears=False), SOUND, "cannot hear"),
    ],
)
def test_what_a_model_cannot_read_is_refused(
    projector: Projector | None, piece: MediaPiece, words: str
) -> None:
    with pytest.raises(UnsupportedContent, match=f"^messages: this model {words}$") as refused:
        MediaLayout(projector).parts(piece, "messages")
    assert refused.value.param == "messages"


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-1, 5)])
def test_an_image_has_pixels(size: tuple[int, int]) -> None:
    with pytest.raises(InvalidRequest, match="prompt: an image has no pixels") as refused:
        MediaLayout(Tiles()).parts(image("a", *size), "prompt")
    assert refused.value.param == "prompt"


def test_a_sound_has_samples() -> None:
    with pytest.raises(InvalidRequest, match="prompt: a sound has no samples"):
        MediaLayout(Tiles()).parts(AudioPiece(digest="s"), "prompt")


def test_cells_that_attend_to_each_other_are_together() -> None:
    whole = Tiles(is_causal=False)
    assert len(MediaLayout(whole, most_together=12).parts(image(), "messages")) == 4
    with pytest.raises(InvalidRequest, match="a part of it takes 12 tokens at once, and 11 is the most"):
        MediaLayout(whole, most_together=11).parts(image(), "messages")
    assert MediaLayout(Tiles(), most_together=0).parts(image(), "messages")


def prompt(reader: MediaLayout, *pieces: list[int] | MediaPiece) -> list[PromptPart]:
    parts: list[PromptPart] = []
    for piece in pieces:
        parts += [piece] if isinstance(piece, list) else reader.parts(piece, "prompt")
    return parts


def test_a_prompt_has_placeholders_and_positions() -> None:
    reader = MediaLayout(Tiles(is_causal=False), most_together=99)
    ids, media = reader.assemble(prompt(reader, [7, 8], image(), [9], SOUND))
    tile, overview, sound = media.chunks
    assert [(chunk.start, chunk.end) for chunk in media.chunks] == [(3, 6), (6, 18), (21, 31)]
    assert [(chunk.position, chunk.next_position) for chunk in media.chunks] == [(3, 6), (6, 10), (13, 23)]
    assert (ids < 0).nonzero()[0].tolist() == [*range(3, 18), *range(21, 31)]
    assert ids[ids >= 0].tolist() == [7, 8, OPEN, CLOSE, CLOSE, 9]
    assert tile.positions.tolist() == [[3, 4, 5], [3, 4, 5], [3, 4, 5], [0, 1, 2]]
    assert overview.positions[:, [0, 5, 11]].tolist() == [[6, 6, 6], [6, 7, 8], [6, 7, 9], [0, 0, 0]]
    assert sound.positions.tolist() == [list(range(13, 23))]
    assert [(chunk.number, chunk.piece) for chunk in media.chunks] == [(0, image()), (1, image()), (0, SOUND)]
    assert all(chunk.is_whole for chunk in media.chunks)
    assert ids.dtype == np.int32


def keys(reader: MediaLayout, piece: MediaPiece) -> list[bytes]:
    _, media = reader.assemble(prompt(reader, [1], piece))
    return [chunk.key for chunk in media.chunks]


def test_equal_images_have_equal_placeholders() -> None:
    reader = MediaLayout(Tiles(), "mmproj")
    first, second = (reader.assemble(prompt(reader, start, image()))[0] for start in ([1], [1, 2, 3]))
    # The overview is long enough to be recognised; the tile is not.
    assert first[5:17].tolist() == second[7:19].tolist()


def test_embeddings_are_shared_under_one_salt_only() -> None:
    reader = MediaLayout(Tiles(), "mmproj")
    keys_of = [
        tuple(chunk.key for chunk in reader.assemble(prompt(reader, [1], image()), salt)[1].chunks)
        for salt in ("", "a", "a", "b")
    ]
    assert keys_of[1] == keys_of[2]
    assert len(set(keys_of)) == 3


def test_what_is_encoded_in_another_way_has_another_key() -> None:
    reader = MediaLayout(Tiles(), "mmproj")
    found = [
        keys(reader, image()),
        keys(reader, image("b")),
        keys(reader, image(width=6)),
        keys(reader, image(height=2)),
        keys(reader, SOUND),
        keys(MediaLayout(Tiles(), "other"), image()),
    ]
    flat = [key for each in found for key in each]
    assert len(set(flat)) == len(flat)
    assert keys(reader, image()) == found[0]
