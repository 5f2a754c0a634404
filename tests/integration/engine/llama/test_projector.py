"""Projectors of each kind: where an image is in a prompt, what its cells hold, and files that are refused."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from jan_serve.core.messages import AudioPiece, ImagePiece
from jan_serve.engine.llama import backend
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.projector import MediaPart, Projector, heard_frames
from jan_serve.errors import EngineFailure, InvalidModel
from models.recipe.fixtures import write_tiny_llama
from models.recipe.projector_fixtures import (
    ProjectorKind,
    write_tiny_conformer,
    write_tiny_hearing_projector,
    write_tiny_projector,
    write_tiny_qwen2vl,
)
from tests.integration.engine.media.images import picture, unseen

pytestmark = pytest.mark.integration

KINDS: tuple[ProjectorKind, ...] = get_args(ProjectorKind)
DYNAMIC: ProjectorKind = "qwen2vl_merger"
WIDTH = 64

Projectors = dict[ProjectorKind, Projector]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, LlamaModel]]:
    backend.start()
    folder = tmp_path_factory.mktemp("text")
    write_tiny_llama(folder / "llama.gguf")
    write_tiny_qwen2vl(folder / "qwen2vl.gguf")
    opened = {name: LlamaModel(str(folder / f"{name}.gguf")) for name in ("llama", "qwen2vl")}
    yield opened
    for model in opened.values():
        model.close()


@pytest.fixture(scope="module")
def projectors(
    models: dict[str, LlamaModel], tmp_path_factory: pytest.TempPathFactory
) -> Generator[Projectors]:
    folder = tmp_path_factory.mktemp("projectors")
    opened: Projectors = {}
    for kind in KINDS:
        path = folder / f"{kind}.gguf"
        write_tiny_projector(path, kind)
        text = models["qwen2vl" if kind == DYNAMIC else "llama"]
        opened[kind] = Projector(str(path), text, threads=1, use_gpu=False)
    yield opened
    for projector in opened.values():
        projector.close()


def media_of(projector: Projector, piece: ImagePiece) -> list[MediaPart]:
    return [part for part in projector.layout(piece) if isinstance(part, MediaPart)]


def encoded(projector: Projector, piece: ImagePiece) -> np.ndarray[Any, np.dtype[np.float32]]:
    with projector.opened(piece) as encode:
        return encode(0)


@pytest.mark.parametrize(
    ("kind", "is_causal", "has_mrope"),
    [("mlp", True, False), ("gemma3", False, False), (DYNAMIC, True, True)],
)
def test_what_a_file_says_of_itself(
    projectors: Projectors, kind: ProjectorKind, is_causal: bool, has_mrope: bool
) -> None:
    projector = projectors[kind]
    assert (projector.is_causal, projector.has_mrope) == (is_causal, has_mrope)
    assert (projector.sees, projector.hears, projector.modalities) == (True, False, ("vision",))
    assert projector.audio_rate == 0


@pytest.mark.parametrize(
    ("kind", "size", "cells", "positions"),
    [
        ("mlp", (40, 30), 16, 16),
        ("mlp", (1, 300), 16, 16),
        ("gemma3", (40, 30), 9, 9),
        (DYNAMIC, (40, 30), 12, 4),
        (DYNAMIC, (280, 140), 50, 10),
    ],
)
def test_cells_and_positions_of_an_image(
    projectors: Projectors, kind: ProjectorKind, size: tuple[int, int], cells: int, positions: int
) -> None:
    image = picture(1, *size)
    [part] = media_of(projectors[kind], image)
    assert (part.number, part.num_cells, part.num_positions) == (0, cells, positions)
    [without_pixels] = media_of(projectors[kind], unseen(image))
    assert without_pixels.num_cells == cells
    components = 4 if kind == DYNAMIC else 1
    assert part.offsets.shape == (components, cells) and part.steps.shape == (components, 1)


def test_cells_are_at_one_position_after_the_other(projectors: Projectors) -> None:
    [part] = media_of(projectors["mlp"], picture(1))
    assert (part.offsets + part.steps * 7).tolist() == [list(range(7, 7 + 16))]


def test_cells_in_three_dimensions_are_at_their_place_in_the_image(projectors: Projectors) -> None:
    """All at the time of the first; rows and columns count from there."""
    [part] = media_of(projectors[DYNAMIC], picture(1, 40, 30))
    time, height, width, _ = part.offsets + part.steps * 7
    assert set(time.tolist()) == {7}
    rows, columns = int(height.max()) - 6, int(width.max()) - 6
    assert rows * columns == part.num_cells and max(rows, columns) == part.num_positions
    assert height.tolist() == [7 + row for row in range(rows) for _ in range(columns)]
    assert width.tolist() == [7 + column for _ in range(rows) for column in range(columns)]


@pytest.mark.parametrize("kind", KINDS)
def test_marks_around_an_image_are_tokens_of_the_text_model(
    projectors: Projectors, models: dict[str, LlamaModel], kind: ProjectorKind
) -> None:
    vocab = models["qwen2vl" if kind == DYNAMIC else "llama"].vocab
    layout = projectors[kind].layout(picture(1))
    marks = [token for part in layout if isinstance(part, tuple) for token in part]
    assert all(0 <= token < vocab.n_tokens for token in marks)
    assert bool(marks) is (kind != "mlp")


@pytest.mark.parametrize("kind", KINDS)
def test_the_largest_part_is_not_smaller_than_any(projectors: Projectors, kind: ProjectorKind) -> None:
    projector = projectors[kind]
    largest = projector.largest_part()
    for size in ((40, 30), (1000, 1000), (3000, 200), (4096, 4096)):
        [part] = media_of(projector, ImagePiece(width=size[0], height=size[1], digest=""))
        assert part.num_cells <= largest
    assert (largest > 100) is (kind == DYNAMIC)


@pytest.mark.parametrize("kind", KINDS)
def test_cells_hold_a_row_each_which_depends_on_the_pixels(
    projectors: Projectors, kind: ProjectorKind
) -> None:
    projector = projectors[kind]
    one, other = encoded(projector, picture(1)), encoded(projector, picture(2))
    [part] = media_of(projector, picture(1))
    assert one.shape == (part.num_cells, WIDTH)
    assert np.isfinite(one).all()
    assert not np.allclose(one, other, atol=1e-3)
    np.testing.assert_array_equal(encoded(projector, picture(1)), one, "a copy, and nothing stays")


@pytest.mark.parametrize("missing", [1, 3])
def test_an_image_has_as_many_pixels_as_its_size_says(projectors: Projectors, missing: int) -> None:
    image = picture(1)
    cut = ImagePiece(width=image.width, height=image.height, digest="", pixels=image.pixels[:-missing])
    with pytest.raises(EngineFailure, match="as many pixels as its size says"), projectors["mlp"].opened(cut):
        pass


def test_a_projector_may_be_closed_twice(models: dict[str, LlamaModel], tmp_path: Path) -> None:
    write_tiny_projector(tmp_path / "mmproj.gguf", "mlp")
    projector = Projector(str(tmp_path / "mmproj.gguf"), models["llama"], threads=1, use_gpu=False)
    for _ in range(2):
        projector.close()
    assert projector.pointer is None


def _wide(path: Path) -> None:
    write_tiny_projector(path, "mlp", n_embd=128)


def _unknown(path: Path) -> None:
    write_tiny_projector(path, "mlp")
    path.write_bytes(path.read_bytes().replace(b"mlp", b"mlq", 1))


def _cut(path: Path) -> None:
    write_tiny_projector(path, "mlp")
    path.write_bytes(path.read_bytes()[:100_000])


def _head_only(path: Path) -> None:
    write_tiny_projector(path, "mlp")
    path.write_bytes(path.read_bytes()[:700])


def _no_gguf(path: Path) -> None:
    path.write_text("hello" * 1000)


def _nothing(_path: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (_wide, "it is for models of the width 128, and this one has 64"),
        (_unknown, "unknown projector type: mlq"),
        (_cut, "failed to seek for tensor v.blk"),
        (_head_only, "it is damaged, or of a kind that llama.cpp does not know"),
        (write_tiny_llama, "it is damaged, or of a kind that llama.cpp does not know"),
        (_no_gguf, "it is damaged, or of a kind that llama.cpp does not know"),
        (_nothing, "it is damaged, or of a kind that llama.cpp does not know"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(
    models: dict[str, LlamaModel], tmp_path: Path, write: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "mmproj.gguf"
    write(path)
    with pytest.raises(InvalidModel) as refused:
        Projector(str(path), models["llama"], threads=1, use_gpu=False)
    assert refused.value.message.startswith(f"its projector mmproj.gguf cannot be used: {reason}")
    assert str(tmp_path) not in refused.value.message


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 44_100])
def test_no_piece_of_a_sound_is_shorter_than_a_tenth_of_a_second(rate: int) -> None:
    least, piece = rate // 10, 30 * rate
    for whole in (0, piece, 20 * piece):
        for frames in range(whole, whole + 1001):
            found = heard_frames(frames, rate)
            assert found == frames if frames == whole and whole else found >= max(frames, whole + least)
            assert found - frames <= least
    assert heard_frames(least + 1, rate) == least + 1
    assert heard_frames(piece - 1, rate) == piece - 1


@pytest.mark.parametrize("write", [write_tiny_hearing_projector, write_tiny_conformer])
def test_sounds_of_any_length_are_heard(
    models: dict[str, LlamaModel], tmp_path: Path, write: Callable[[Path], None]
) -> None:
    """The second projector has cells for each 80 ms, and asserts 20."""
    write(tmp_path / "mmproj.gguf")
    projector = Projector(str(tmp_path / "mmproj.gguf"), models["llama"], threads=1, use_gpu=False)
    for frames in (1, 2, 3, 100, 159, 160, 161, 319, 320, 321, 800, 1000, 1599, 1600, 1601, 30 * 16_000 - 1):
        counted = projector.layout(AudioPiece(digest="", frames=frames))
        cells = [part.num_cells for part in counted if isinstance(part, MediaPart)]
        samples = np.linspace(-0.1, 0.1, frames, dtype=np.float32).tobytes()
        with projector.opened(AudioPiece(digest="", frames=frames, samples=samples)) as encode:
            for number, count in enumerate(cells):
                rows = encode(number)
                assert rows.shape == (count, WIDTH)
                assert np.isfinite(rows).all()
    projector.close()
