"""What management makes of names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jan_serve.errors import AdapterNotFound, ModelNotFound
from jan_serve.store.configured_names import ConfiguredNames
from jan_serve.store.library import ModelLibrary
from jan_serve.store.resolve import ModelResolver


def no_puller() -> Any:
    raise AssertionError("nothing is pulled")


@pytest.fixture
def library(tmp_path: Path) -> ModelLibrary:
    (tmp_path / "plain-7b.gguf").write_bytes(b"GGUF")
    names = {"plain-7b": ConfiguredNames(("gpt",), ("sql",))}
    return ModelLibrary(ModelResolver(tmp_path, names=lambda: names), tmp_path, no_puller)


@pytest.mark.parametrize("name", ["plain-7b", "plain", "gpt", "plain-7b:sql", "gpt:sql", "sql"])
def test_a_model_is_found_by_its_names_and_by_its_adapters(library: ModelLibrary, name: str) -> None:
    assert library.find(name) == "plain-7b"


@pytest.mark.parametrize("name", ["plain", "PLAIN-7B", "gpt", "sql", "plain-7b:sql", "plain-7b.gguf"])
def test_only_the_canonical_name_removes(library: ModelLibrary, name: str) -> None:
    with pytest.raises(ModelNotFound):
        library.remove(name)
    assert library.find("plain-7b") == "plain-7b"
    assert library.remove("plain-7b").name == "plain-7b"


def test_names_that_mean_nothing(library: ModelLibrary) -> None:
    with pytest.raises(ModelNotFound):
        library.find("absent")
    with pytest.raises(AdapterNotFound):
        library.find("plain-7b:absent")
