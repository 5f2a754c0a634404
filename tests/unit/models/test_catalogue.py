"""The catalogue of models to pull: complete, consistent and in the ranges that make sense."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from models.recipe.corpus import identity, unknown

CATALOGUE = Path(__file__).resolve().parents[3] / "models" / "catalogue.toml"
KINDS = {"chat", "tools", "thinking", "code", "fim", "vision", "embedding", "rerank"}
REQUIRED: dict[str, type] = {
    "name": str,
    "title": str,
    "repo": str,
    "file": str,
    "quantization": str,
    "kinds": list,
    "parameters": float,
    "size_gb": float,
    "context": int,
    "memory_gb": float,
    "since": str,
    "licence": str,
    "note": str,
}


def entries() -> list[dict[str, Any]]:
    return tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))["model"]


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry["name"])
def test_entry_is_complete(entry: dict[str, Any]) -> None:
    assert entry.keys() - {"mmproj", "known_as", "active"} == REQUIRED.keys()
    for field, kind in REQUIRED.items():
        assert type(entry[field]) is kind, field
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", entry["name"])
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", entry["repo"])
    assert entry["file"].endswith(".gguf")
    assert entry["quantization"].lower() in entry["file"].lower()
    assert set(entry["kinds"]) <= KINDS and entry["kinds"]
    assert ("mmproj" in entry) == ("vision" in entry["kinds"])
    assert "text only" not in entry["note"]
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", entry["since"])
    assert 0 < entry.get("active", entry["parameters"]) <= entry["parameters"]


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry["name"])
def test_sizes_agree_with_each_other(entry: dict[str, Any]) -> None:
    bits = entry["size_gb"] * 8 / entry["parameters"]
    assert 4.0 < bits < 9.5, "bits a weight"
    assert entry["size_gb"] < entry["memory_gb"] < entry["size_gb"] + 2.5
    assert 512 <= entry["context"] <= 1_048_576


def test_names_are_unique_and_every_need_is_met() -> None:
    found = entries()
    names = [entry["name"] for entry in found]
    names += [name for entry in found for name in entry.get("known_as", ())]
    assert len(names) == len(set(names)) >= 15
    assert {kind for entry in found for kind in entry["kinds"]} == KINDS
    assert any(entry["memory_gb"] <= 2 and "chat" in entry["kinds"] for entry in found)


def test_built_in_model_recommends_models_that_are_there() -> None:
    answers = (identity.PULL, unknown.GENERAL, unknown.CODE, unknown.PICTURE)
    recommended = {name for answer in answers for name in re.findall(r"jan-serve pull ([\w.-]+)`", answer)}
    assert recommended
    assert recommended <= {entry["name"] for entry in entries()}
