"""rm: checks before it deletes anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jan_serve.core.models import Variant
from jan_serve.store.index import VariantIndex
from tests.support.managed import add_model
from tests.unit.cli.conftest import Run


@pytest.mark.parametrize("words", [("shipped",), ("shipped", "--yes"), ("mine", "shipped", "--yes")])
def test_the_built_in_model_stays(
    run: Run, own_settings: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    builtin = add_model(own_settings.parent, "shipped")
    mine = add_model(own_settings.parent / "data" / "models", "mine")
    monkeypatch.setattr("jan_serve.wiring.parts.builtin_model", lambda: builtin)
    monkeypatch.setattr("jan_serve.wiring.parts.BUILTIN_MODEL", "shipped")
    answer = run("rm", *words)
    assert (answer.status, answer.out) == (2, "")
    assert "The model `shipped` ships with jan-serve; it is not removed." in answer.err
    assert builtin.exists() and mine.exists()


def test_a_file_of_the_user_needs_confirmation(run: Run, own_settings: Path) -> None:
    mine = add_model(own_settings.parent / "data" / "models", "mine")
    answer = run("rm", "mine")
    assert answer.status == 2
    assert "Use --yes" in answer.err
    assert mine.exists()
    assert run("rm", "mine", "--yes").status == 0
    assert not mine.exists()


def test_an_unknown_name_is_explained_once(run: Run) -> None:
    answer = run("rm", "nope")
    assert answer.status == 2
    assert answer.err.count("jan-serve ls") == 1


def test_the_beginning_of_a_name_deletes_nothing(run: Run, own_settings: Path) -> None:
    mine = add_model(own_settings.parent / "data" / "models", "qwen3-0.6b-instruct")
    answer = run("rm", "qwen3-0.6b", "--yes")
    assert answer.status == 2
    assert "qwen3-0.6b-instruct" in answer.err
    assert mine.exists()
    assert run("rm", "qwen3-0.6b-instruct.gguf", "--yes").status == 0
    assert not mine.exists()


def test_a_variant_goes_and_its_model_stays(run: Run, own_settings: Path) -> None:
    models = own_settings.parent / "data" / "models"
    mine = add_model(models, "mine")
    variants = VariantIndex(models)
    variants.put(Variant(name="short", base="mine", created_at=0))
    answer = run("rm", "short:latest")
    assert (answer.status, answer.err) == (0, "Removed short (a variant of mine).\n")
    assert variants.all() == ()
    assert mine.exists()
    variants.put(Variant(name="short", base="mine", created_at=0))
    removed = json.loads(run("rm", "short", "--json").out)["removed"]
    assert removed == [{"name": "short", "files": [], "freed_bytes": 0}]
    variants.put(Variant(name="short", base="mine", created_at=0))
    assert run("rm", "short", "absent").status == 2
    assert variants.get("short") is not None
