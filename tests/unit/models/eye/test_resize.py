"""Pictures of any size: brought to the encoder's size as libmtmd brings them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.recipe.eye.projector_file import EyeShape, write_projector
from models.recipe.eye.resize import fitted

SIZES = ((1, 1), (7, 3), (31, 32), (64, 64), (45, 97), (300, 11), (224, 224), (3, 500), (640, 333))


def noise(height: int, width: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(height * 1000 + width).integers(0, 256, (height, width, 3), np.uint8)


def test_the_own_size_is_kept() -> None:
    picture = noise(32, 32)
    assert np.array_equal(fitted(picture, 32), picture)


@pytest.mark.parametrize(("height", "width"), [(64, 32), (20, 60), (50, 50)])
def test_a_picture_fills_the_square(height: int, width: int) -> None:
    assert (fitted(np.full((height, width, 3), 200, np.uint8), 32) == 200).all()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("llama_cpp", reason="libmtmd comes with llama-cpp-python")
    from models.recipe.eye.seeing import SeeingModel

    builtin = Path(__file__).resolve().parents[4] / "models" / "builtin" / "jan-tiny.gguf"
    if not builtin.is_file():
        pytest.skip("the built-in model has not been trained here (make model)")
    random = np.random.default_rng(1)
    shape = EyeShape(widths=(8, 16), blocks=(1, 1))
    tensors = {
        name: (random.standard_normal(dims) * 0.3).astype(np.float32)
        for name, dims in shape.tensor_shapes().items()
    }
    path = tmp_path_factory.mktemp("eye") / "mmproj-random.gguf"
    write_projector(path, shape, tensors, metadata={})
    model = SeeingModel(builtin, path)
    yield model
    model.close()


@pytest.mark.integration
@pytest.mark.model
@pytest.mark.parametrize("size", SIZES)
def test_it_is_what_libmtmd_does(model: Any, size: tuple[int, int]) -> None:
    picture = noise(*size)
    rows = model.embedding(picture)
    assert rows.shape == (64, 192)
    assert np.array_equal(rows, model.embedding(fitted(picture, 32)))
    assert not np.array_equal(rows, model.embedding(255 - picture))
