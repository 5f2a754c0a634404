"""Names that a configuration gives to models: aliases, and LoRA adapters as `model:adapter` or by their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.errors import AdapterNotFound, InvalidRequest, ModelNotFound
from jan_serve.store.model_names import ConfiguredNames
from jan_serve.store.resolve import ModelResolver

FILES = (
    "org/repo/Model-Q4_K_M.gguf",
    "org/repo/Model-Q8_0.gguf",
    "sqlcoder.gguf",
    "plain.gguf",
    "plain-2.gguf",
)
NAMES = {
    "plain": ConfiguredNames(("gpt-4o", "llama3:8b"), ("sql", "Poet")),
    "org/repo:Q8_0": ConfiguredNames(("big",), ("poet", "only")),
    "absent": ConfiguredNames(("ghost",), ("none",)),
}


@pytest.fixture
def resolver(tmp_path: Path) -> ModelResolver:
    for file in FILES:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")
    return ModelResolver(tmp_path, names=lambda: NAMES)


@pytest.mark.parametrize(
    ("name", "model", "adapter"),
    [
        ("gpt-4o", "plain", None),
        ("GPT-4o", "plain", None),
        ("llama3:8b", "plain", None),
        ("big", "org/repo/Model-Q8_0", None),
        ("org/repo:Q8_0", "org/repo/Model-Q8_0", None),
        ("plain:sql", "plain", "sql"),
        ("plain.gguf:SQL", "plain", "sql"),
        ("gpt-4o:poet", "plain", "Poet"),
        ("llama3:8b:sql", "plain", "sql"),
        ("org/repo:Q8_0:only", "org/repo/Model-Q8_0", "only"),
        ("only", "org/repo/Model-Q8_0", "only"),
        ("sql", "plain", "sql"),
        ("sqlc", "sqlcoder", None),
    ],
)
def test_names_of_models_and_adapters(
    resolver: ModelResolver, name: str, model: str, adapter: str | None
) -> None:
    entry, chosen = resolver.resolve_with_adapter(name)
    assert (entry.name, chosen) == (model, adapter)


@pytest.mark.parametrize(
    "name", ["ghost", "none", "plain-2:sql", "pla:sql", ":sql", "sqlcoder:sql", "xyz:latest"]
)
def test_names_that_mean_nothing(resolver: ModelResolver, name: str) -> None:
    with pytest.raises(ModelNotFound):
        resolver.resolve_with_adapter(name)


def test_a_model_with_adapters_says_which_it_has(resolver: ModelResolver) -> None:
    with pytest.raises(AdapterNotFound, match="`plain` has no LoRA adapter `nope`; it has sql, Poet"):
        resolver.resolve_with_adapter("plain:nope")


def test_an_adapter_of_two_models_is_ambiguous(resolver: ModelResolver) -> None:
    with pytest.raises(InvalidRequest, match=r"org/repo/Model-Q8_0:poet, plain:Poet"):
        resolver.resolve_with_adapter("poet")


def test_entries_carry_their_configuration(resolver: ModelResolver) -> None:
    tables = {entry.name: (entry.table, entry.adapters) for entry in resolver.entries()}
    assert tables == {
        "org/repo/Model-Q4_K_M": (None, ()),
        "org/repo/Model-Q8_0": ("org/repo:Q8_0", ("poet", "only")),
        "plain": ("plain", ("sql", "Poet")),
        "plain-2": (None, ()),
        "sqlcoder": (None, ()),
    }


def test_a_models_own_name_counts_before_its_repository(tmp_path: Path) -> None:
    path = tmp_path / "org/repo/Model-Q4_K_M.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    for order in (1, -1):
        names = dict(
            [
                *{
                    "org/repo": ConfiguredNames(("a",)),
                    "org/repo/Model-Q4_K_M": ConfiguredNames(("b",)),
                }.items()
            ][::order]
        )
        resolver = ModelResolver(tmp_path, names=lambda names=names: names)
        assert resolver.resolve("b").table == "org/repo/Model-Q4_K_M"
        with pytest.raises(ModelNotFound):
            resolver.resolve("a")


def test_tables_are_looked_for_again_when_models_or_names_change(tmp_path: Path) -> None:
    names = {"one": ConfiguredNames(("a",))}
    resolver = ModelResolver(tmp_path, names=lambda: names)
    assert resolver.entries() == ()
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    assert [entry.aliases for entry in resolver.entries()] == [("a",)]
    names["one"] = ConfiguredNames(("b",), adapter_files=(tmp_path / "two.gguf",))
    (tmp_path / "two.gguf").write_bytes(b"GGUF")
    assert [(entry.name, entry.aliases) for entry in resolver.entries()] == [("one", ("b",))]
    names.clear()
    assert [(entry.name, entry.table) for entry in resolver.entries()] == [("one", None), ("two", None)]
