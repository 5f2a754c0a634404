"""The projector's file: what it declares, and that libmtmd reads it beside a text model of its width only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from models.recipe import fixtures
from models.recipe.eye.projector_file import EyeShape, write_projector

SMALL = EyeShape(widths=(8, 16), blocks=(1, 1), n_text=64)


def random_tensors(shape: EyeShape, seed: int = 1) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    random = np.random.default_rng(seed)
    return {
        name: (random.standard_normal(dims) * 0.3).astype(np.float32)
        for name, dims in shape.tensor_shapes().items()
    }


def test_header(tmp_path: Path) -> None:
    path = tmp_path / "mmproj-a.gguf"
    write_projector(path, SMALL, random_tensors(SMALL), metadata={"general.name": "a"})
    fields: dict[str, Any] = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
    assert fields["general.architecture"] == "clip"
    assert fields["general.type"] == "mmproj"
    assert fields["general.name"] == "a"
    assert fields["clip.projector_type"] == "yasa2"
    assert fields["clip.vision.projection_dim"] == 64


def test_the_size_that_ships_is_at_most_a_megabyte(tmp_path: Path) -> None:
    path = tmp_path / "mmproj-a.gguf"
    write_projector(path, EyeShape(), random_tensors(EyeShape()), metadata={})
    assert path.stat().st_size <= 1_000_000


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    tensors = random_tensors(SMALL)
    tensors["mm.0.bias"] = tensors["mm.0.bias"][1:]
    del tensors["v.patch_ln.bias"]
    with pytest.raises(ValueError, match=r"mm\.0\.bias, v\.patch_ln\.bias"):
        write_projector(tmp_path / "a.gguf", SMALL, tensors, metadata={})


@pytest.mark.integration
@pytest.mark.parametrize("half", [True, False])
def test_libmtmd_reads_it_beside_a_model_of_its_width(tmp_path: Path, half: bool) -> None:
    pytest.importorskip("llama_cpp", reason="libmtmd comes with llama-cpp-python")
    from models.recipe.eye.seeing import MARKER, SeeingModel

    paths = {width: tmp_path / f"text-{width}.gguf" for width in (64, 96)}
    for width, path in paths.items():
        fixtures.write_tiny_llama(path, n_embd=width)
    projector = tmp_path / "mmproj-a.gguf"
    write_projector(projector, SMALL, random_tensors(SMALL), metadata={}, half=half)
    with pytest.raises(ValueError, match="does not fit"):
        SeeingModel(paths[96], projector)
    model = SeeingModel(paths[64], projector)
    try:
        red, blue = np.zeros((2, 40, 30, 3), np.uint8)
        red[..., 0], blue[..., 2] = 255, 255
        rows = model.embedding(red)
        assert rows.shape == (64, 64)
        assert np.array_equal(rows, model.embedding(red))
        assert np.abs(rows - model.embedding(blue)).max() > 0.1
        assert model.answer(f"a {MARKER} b", red) == model.answer(f"a {MARKER} b", red)
        with pytest.raises(ValueError, match="one marker"):
            model.answer("no picture", red)
    finally:
        model.close()
