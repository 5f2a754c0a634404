"""The evaluation's table and its judgement of an answer; the model itself is not needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("llama_cpp", reason="the evaluation runs on llama-cpp-python")

from models.recipe import evaluate, model_card


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ('{"name": "A", "age": 3, "city": "B", "email": "c"}', True),
        ('{"name": "A", "age": "3", "city": "B", "email": "c"}', False),
        ('{"name": "A", "age": true, "city": "B", "email": "c"}', False),
        ('{"name": "A", "age": 3, "city": "B"}', False),
        ("[1]", False),
        ("{", False),
    ],
)
def test_only_an_instance_of_the_schema_is_a_person(text: str, valid: bool) -> None:
    assert evaluate.is_person(text) is valid


def test_table_tells_misses() -> None:
    good, bad = evaluate.Row("good", 90.0), evaluate.Row("bad", 90.0)
    for index in range(10):
        good.add(True, "p", "w", "w")
        bad.add(index < 8, "p", "w", "said")
    lines = evaluate.table([good, bad]).splitlines()
    assert "100.0 %" in lines[2] and "missed" not in lines[2]
    assert "80.0 %" in lines[3] and "missed" in lines[3]
    assert len(bad.failures) == 2
    assert json.dumps(bad.failures[0])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        evaluate.GreedyModel(tmp_path / "absent.gguf")


def test_card_tells_the_figures_and_the_log() -> None:
    row = evaluate.Row("adds", 90.0)
    row.add(False, "p", "w", "said")
    log = [{"step": step, "tokens": step * 4096, "loss": 1.0, "rate": 0.004} for step in (100, 250, 260)]
    seen = evaluate.Row("colour", None)
    seen.add(True, "p", "red", "red")
    text = model_card.card([row], [seen], log, "A note.")
    assert "Below what was asked for: adds." in text
    assert "| colour | 1 | 100.0 % |" in text
    assert "| adds | 1 | 0.0 % |" in text
    assert "| 250 |" in text and "| 260 |" in text and "| 100 |" not in text
    assert "A note." in text
