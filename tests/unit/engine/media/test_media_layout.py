"""MediaLayout: what images and sound are in a prompt, over a projector that lays them out by their size."""

from __future__ import annotations

import numpy as np
import pytest

from jan_serve.core.messages import AudioPiece, ImagePiece, MediaPiece
from jan_serve.engine.llama.projector import MarkupPart, MediaPart, Projector
from jan_serve.engine.media.media_layout import MediaLayout, PromptPart
from jan_serve.errors import InvalidRequest, UnsupportedContent

OPEN, CLOSE = 1000, 1001


class Tiles(Projector):
    """An image is a tile of 3 cells for each row of pixels, and an overview of 12 cells and 4 positions, in tokens.

    A sound is 10 cells of one component.
    """

    def __init__(self, *, sees: bool = True, hears: bool = True, is_causal: bool = True) -> None:
        self.sees, self.hears, self.is_causal = sees, hears, is_causal
        self.longest_sound = None

    def layout(self, piece: MediaPiece) -> tuple[MarkupPart | MediaPart, ...]:
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
        return (
            MarkupPart((OPEN,)),
            *tiles,
            MediaPart(piece.height, 12, 4, overview, steps),
            MarkupPart((CLOSE, CLOSE)),
        )


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
