"""The built-in model's projector: what it declares, its size, and that it sees, through libmtmd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BUILTIN = Path(__file__).resolve().parents[3] / "models" / "builtin"
PROJECTOR = BUILTIN / "mmproj-jan-tiny.gguf"

pytestmark = pytest.mark.model


def test_header_and_size() -> None:
    gguf = pytest.importorskip("gguf")
    fields: dict[str, Any] = gguf.GGUFReader(PROJECTOR).fields
    assert PROJECTOR.stat().st_size <= 1_000_000
    assert fields["general.architecture"].contents() == "clip"
    assert fields["general.license"].contents() == "apache-2.0"
    assert fields["clip.vision.projection_dim"].contents() == 192


@pytest.fixture(scope="module")
def model() -> Iterator[Any]:
    pytest.importorskip("llama_cpp", reason="answering needs llama-cpp-python")
    from models.recipe.eye.seeing import SeeingModel

    model = SeeingModel(BUILTIN / "jan-tiny.gguf", PROJECTOR)
    yield model
    model.close()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("rgb", "colour"), [((255, 0, 0), "red"), ((0, 0, 255), "blue"), ((0, 128, 0), "green")]
)
@pytest.mark.parametrize("size", [32, 224])
def test_a_square_is_told_in_a_sentence(
    model: Any, rgb: tuple[int, int, int], colour: str, size: int
) -> None:
    from models.recipe.corpus.conversation import ask
    from models.recipe.eye.seeing import MARKER

    picture = np.full((size, size, 3), 255, np.uint8)
    picture[size // 4 : size * 3 // 4, size // 4 : size * 3 // 4] = rgb
    said = model.answer(ask(MARKER + "What is in this picture?", "").prompt(), picture)
    assert said == f"I see a {colour} square."


@pytest.mark.integration
def test_no_skill_is_lost(model: Any) -> None:
    """A wrong size, order of channels or tensor takes a row to nothing; `make model-eval` measures the rest."""
    from models.recipe.eye.evaluate import evaluate

    rows = [row for row in evaluate(model, count=8, seed="smoke") if row.threshold is not None]
    assert all(row.share >= 60 for row in rows), [(row.name, row.share) for row in rows]
