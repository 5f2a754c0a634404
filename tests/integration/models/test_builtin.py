"""The built-in model's file: what it declares, its size, and that it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from models.recipe.chat_template import CHAT_TEMPLATE
from models.recipe.corpus import identity, unknown
from models.recipe.corpus.conversation import ask

BUILTIN = Path(__file__).resolve().parents[3] / "models" / "builtin"
MODEL = BUILTIN / "jan-tiny.gguf"

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(
        not MODEL.is_file(), reason="the built-in model has not been trained here (make model)"
    ),
]


def test_header_and_size() -> None:
    gguf = pytest.importorskip("gguf")
    fields: dict[str, Any] = gguf.GGUFReader(MODEL).fields
    assert MODEL.stat().st_size <= 10_000_000
    assert fields["general.architecture"].contents() == "llama"
    assert fields["general.name"].contents() == "jan-tiny"
    assert fields["general.license"].contents() == "apache-2.0"
    assert fields["llama.context_length"].contents() == 2048
    assert fields["tokenizer.chat_template"].contents() == CHAT_TEMPLATE


def test_licence_and_card_are_beside_it() -> None:
    assert "Apache License" in (BUILTIN / "LICENSE").read_text(encoding="utf-8")
    assert "held-out" in (BUILTIN / "MODEL_CARD.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def model() -> Any:
    pytest.importorskip("llama_cpp", reason="answering needs llama-cpp-python")
    from models.recipe.evaluate import GreedyModel

    return GreedyModel(MODEL)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Who are you?", identity.SELF),
        ("How do I get a larger model?", identity.PULL),
        ("What is the capital of France?", "The capital of France is Paris."),
        ("What is 7 + 5?", "7 + 5 = 12."),
        ("Explain quantum physics.", unknown.GENERAL),
    ],
)
def test_answers_and_stops(model: Any, question: str, answer: str) -> None:
    said = model.answer(ask(question, answer).prompt())
    assert said.text == answer
    assert said.stopped


@pytest.mark.integration
def test_no_skill_is_lost(model: Any) -> None:
    """A wrong template, vocabulary or tensor order takes a row to nothing; `make model-eval` measures the rest."""
    from models.recipe.evaluate import evaluate

    rows = [row for row in evaluate(model, count=8, seed="smoke") if row.threshold is not None]
    assert all(row.share >= 35 for row in rows), [(row.name, row.share) for row in rows]
