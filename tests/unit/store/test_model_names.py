"""Which models a name means, and the configured names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jan_serve.errors import AdapterNotFound, InvalidRequest, ModelNotFound
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source, SourceKind
from jan_serve.store.model_names import ConfiguredNames
from jan_serve.store.resolve import ModelResolver

FILES = (
    "Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf",
    "Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q8_0.gguf",
    "lone/Solo-GGUF/Solo-Q6_K.gguf",
    "deep/Big-GGUF/UD-Q2_K_XL/Big-UD-Q2_K_XL-00001-of-00002.gguf",
    "ollama/llama3.2-1b.gguf",
    "plain.gguf",
)


def record(index: ModelIndex, models: Path, file: str, kind: SourceKind, name: str, *aliases: str) -> None:
    path = models / file
    status = path.stat()
    index.put(
        ModelRecord(
            name=file.removesuffix(".gguf"),
            source=Source(kind=kind, name=name),
            files=(FileRecord(path=file, size_bytes=status.st_size),),
            modified_ns=status.st_mtime_ns,
            added_at=0,
            aliases=aliases,
        )
    )


@pytest.fixture
def resolver(tmp_path: Path) -> ModelResolver:
    for file in FILES:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"GGUF")
    index = ModelIndex(tmp_path)
    record(index, tmp_path, FILES[0], "hub", "Qwen/Qwen3-4B-GGUF", "qwen3-4b")
    record(index, tmp_path, FILES[4], "ollama", "llama3.2:1b", "llama3.2:1b", "llama3.2:latest")
    return ModelResolver(tmp_path, index=index)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("qwen3-4b", FILES[0]),
        ("QWEN3-4B", FILES[0]),
        ("Qwen/Qwen3-4B-GGUF:Q4_K_M", FILES[0]),
        ("hf.co/Qwen/Qwen3-4B-GGUF:q4_k_m", FILES[0]),
        ("Qwen3-4B-GGUF:Q8_0", FILES[1]),
        ("Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q8_0.gguf", FILES[1]),
        ("lone/Solo-GGUF", FILES[2]),
        ("solo-gguf", FILES[2]),
        ("Solo", FILES[2]),
        ("lone", FILES[2]),
        ("deep/Big-GGUF:UD-Q2_K_XL", FILES[3]),
        ("llama3.2:1b", FILES[4]),
        ("llama3.2", FILES[4]),
        ("LLAMA3.2:Latest", FILES[4]),
        ("Solo:LATEST", FILES[2]),
        ("pla", FILES[5]),
    ],
)
def test_names(resolver: ModelResolver, tmp_path: Path, name: str, file: str) -> None:
    assert resolver.resolve(name).path == tmp_path / file


@pytest.mark.parametrize("name", ["Qwen/Qwen3-4B-GGUF", "Qwen3-4B-Q", "qwen"])
def test_ambiguous_names_list_the_candidates(resolver: ModelResolver, name: str) -> None:
    with pytest.raises(InvalidRequest, match=r"Qwen3-4B-Q4_K_M, Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q8_0") as caught:
        resolver.resolve(name)
    assert caught.value.param == "model"


@pytest.mark.parametrize("name", ["pl", "Q8_0", "olo", "Qwen/Qwen3-4B-GGUF:Q5_K_M", "llama3.2:3b", "4B-GGUF"])
def test_names_that_mean_nothing(resolver: ModelResolver, name: str) -> None:
    with pytest.raises(ModelNotFound):
        resolver.resolve(name)


def test_a_record_of_a_file_that_was_replaced_does_not_count(resolver: ModelResolver, tmp_path: Path) -> None:
    os.utime(tmp_path / FILES[0], ns=(1, 1))
    entry = resolver.resolve("Qwen3-4B-GGUF:Q4_K_M")
    assert entry.record is None
    with pytest.raises(InvalidRequest):
        resolver.resolve("qwen3-4b")


SHARED = ("same.gguf", "a/same.gguf", "b/Other.gguf", "b/other-GGUF/Q4/other.gguf")


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("same", ("same.gguf", "a/same.gguf")),
        ("SAME", ("same.gguf", "a/same.gguf")),
        ("other", ("b/Other.gguf", "b/other-GGUF/Q4/other.gguf")),
        ("b/other", ("b/Other.gguf", None)),
        ("same.gguf", ("same.gguf", None)),
        ("a/same", ("a/same.gguf", None)),
        ("b/other-gguf", ("b/other-GGUF/Q4/other.gguf", None)),
    ],
)
def test_a_shared_name_deletes_no_model_even_when_repeated(
    tmp_path: Path, name: str, candidates: tuple[str, str | None]
) -> None:
    for file in SHARED:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(b"GGUF")
    resolver = ModelResolver(tmp_path)
    first, other = candidates
    if other is not None:
        with pytest.raises(InvalidRequest) as caught:
            resolver.resolve_exact(name)
        assert first in caught.value.message and other in caught.value.message
        for file in candidates:
            assert file is not None and resolver.resolve_exact(file).path == tmp_path / file
        return
    found = resolver.resolve_exact(name).path
    assert found == tmp_path / first
    found.unlink()
    with pytest.raises(ModelNotFound):
        resolver.resolve_exact(name)


def test_an_alias_that_is_also_a_file_deletes_neither(tmp_path: Path) -> None:
    for file in ("small.gguf", "org/repo/large-Q4_K_M.gguf"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(b"GGUF")
    index = ModelIndex(tmp_path)
    record(index, tmp_path, "org/repo/large-Q4_K_M.gguf", "hub", "org/repo", "small")
    resolver = ModelResolver(tmp_path, index=index)
    with pytest.raises(InvalidRequest, match=r"org/repo/large-Q4_K_M\.gguf, small\.gguf"):
        resolver.resolve_exact("small")
    assert resolver.resolve("small").name == "small"  # a request may mean it: it costs nothing
    assert resolver.resolve_exact("hf.co/org/repo:q4_k_m").path == tmp_path / "org/repo/large-Q4_K_M.gguf"


CONFIGURED_FILES = (
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
def configured(tmp_path: Path) -> ModelResolver:
    for file in CONFIGURED_FILES:
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
    configured: ModelResolver, name: str, model: str, adapter: str | None
) -> None:
    entry, chosen = configured.resolve_with_adapter(name)
    assert (entry.name, chosen) == (model, adapter)


@pytest.mark.parametrize(
    "name", ["ghost", "none", "plain-2:sql", "pla:sql", ":sql", "sqlcoder:sql", "xyz:latest"]
)
def test_names_that_mean_no_model_and_no_adapter(configured: ModelResolver, name: str) -> None:
    with pytest.raises(ModelNotFound):
        configured.resolve_with_adapter(name)


def test_a_model_with_adapters_says_which_it_has(configured: ModelResolver) -> None:
    with pytest.raises(AdapterNotFound, match="`plain` has no LoRA adapter `nope`; it has sql, Poet"):
        configured.resolve_with_adapter("plain:nope")


def test_an_adapter_of_two_models_is_ambiguous(configured: ModelResolver) -> None:
    with pytest.raises(InvalidRequest, match=r"org/repo/Model-Q8_0:poet, plain:Poet"):
        configured.resolve_with_adapter("poet")


def test_entries_carry_their_configuration(configured: ModelResolver) -> None:
    tables = {entry.name: (entry.table, entry.adapters) for entry in configured.entries()}
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
        configured = ModelResolver(tmp_path, names=lambda names=names: names)
        assert configured.resolve("b").table == "org/repo/Model-Q4_K_M"
        with pytest.raises(ModelNotFound):
            configured.resolve("a")


def test_tables_are_looked_for_again_when_models_or_names_change(tmp_path: Path) -> None:
    names = {"one": ConfiguredNames(("a",))}
    configured = ModelResolver(tmp_path, names=lambda: names)
    assert configured.entries() == ()
    (tmp_path / "one.gguf").write_bytes(b"GGUF")
    assert [entry.aliases for entry in configured.entries()] == [("a",)]
    names["one"] = ConfiguredNames(("b",), adapter_files=(tmp_path / "two.gguf",))
    (tmp_path / "two.gguf").write_bytes(b"GGUF")
    assert [(entry.name, entry.aliases) for entry in configured.entries()] == [("one", ("b",))]
    names.clear()
    assert [(entry.name, entry.table) for entry in configured.entries()] == [("one", None), ("two", None)]
