"""Linking found models and recording them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jan_serve.errors import StoreError
from jan_serve.store.imports.finders import find
from jan_serve.store.imports.link import ImportStatus, assess, take_over
from jan_serve.store.index import ModelIndex
from jan_serve.store.resolve import ModelResolver
from tests.unit.store.gguf_builder import GgufBytes, uint_key
from tests.unit.store.imports.support import DIGEST, MODEL, by_label, write


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_taking_over_links_and_records(cache: Path, ollama: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    index = ModelIndex(models)
    found = [*find("hf", [cache]), *find("ollama", [ollama])]
    before = {
        path: path.stat().st_mtime_ns for path in (*cache.rglob("*"), *ollama.rglob("*")) if path.is_file()
    }
    for model in found:
        looked_at = assess(model, models)
        assert looked_at.state is ImportStatus.NEW, looked_at.reason
        record = take_over(looked_at, models, index)
        assert (models / record.files[0].path).samefile(model.files[0].path)
        assert assess(model, models).state is ImportStatus.HERE
    assert before == {path: path.stat().st_mtime_ns for path in before}
    resolver = ModelResolver(models, index=index)
    assert resolver.resolve("llama3.2:1b").name == "ollama/llama3.2-1b"
    assert resolver.resolve("someone/vision:latest").name == "ollama/someone/vision-latest"
    entry = resolver.resolve("org/Repo-GGUF:Q8_0")
    assert entry.record is not None and entry.record.source.kind == "hf-cache"
    assert entry.record.files[0].sha256 == DIGEST
    assert len(resolver.entries()) == 4


def test_hard_links_survive_and_symbolic_ones_are_the_fallback(
    ollama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    index = ModelIndex(models)
    model = by_label(find("ollama", [ollama]))["llama3.2:1b"]
    target = models / model.files[0].name
    take_over(assess(model, models), models, index)
    assert not target.is_symlink()
    target.unlink()

    def other_file_system(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_file_system)
    take_over(assess(model, models), models, index)
    assert target.is_symlink()
    assert target.readlink().is_absolute()
    model.files[0].path.rename(tmp_path / "moved")
    assert ModelResolver(models, index=index).entries() == ()
    (tmp_path / "moved").rename(model.files[0].path)
    target.unlink()
    target.symlink_to(tmp_path / "nowhere")
    assert assess(model, models).state is ImportStatus.NEW
    take_over(assess(model, models), models, index)
    assert target.samefile(model.files[0].path)


def test_an_unusable_model_has_a_reason(ollama: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    found = by_label(find("ollama", [ollama]))
    write(models / "ollama" / "llama3.2-1b.gguf", b"something else")
    assert assess(found["llama3.2:1b"], models).reason == "another file has its name here"
    write(ollama / "blobs" / f"sha256-{DIGEST}", b"no model")
    assert "is not a valid GGUF file" in assess(found["someone/vision:latest"], models).reason
    (ollama / "blobs" / f"sha256-{DIGEST}").unlink()
    assert assess(found["someone/vision:latest"], models).reason == f"sha256-{DIGEST} is missing"


def test_split_models_come_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "lm"
    for number in (1, 2):
        keys = [uint_key("split.no", number - 1), uint_key("split.count", 2)]
        write(folder / "p" / "r" / f"m-0000{number}-of-00002.gguf", GgufBytes(keys=keys).build())
    (model,) = find("lmstudio", [folder])
    models = tmp_path / "models"
    record = take_over(assess(model, models), models, ModelIndex(models))
    assert (record.name, len(record.files)) == ("p/r/m", 2)
    (folder / "p" / "r" / "m-00002-of-00002.gguf").unlink()
    assert find("lmstudio", [folder]) == []


@pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() == 0, reason="permissions do not bind the superuser"
)
def test_a_folder_that_cannot_be_written(ollama: Path, tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir(mode=0o555)
    looked_at = assess(by_label(find("ollama", [ollama]))["llama3.2:1b"], models)
    with pytest.raises(StoreError, match="Cannot write"):
        take_over(looked_at, models, ModelIndex(models))


def test_a_failure_half_way_takes_the_links_back(
    ollama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    looked_at = assess(by_label(find("ollama", [ollama]))["someone/vision:latest"], models)

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ModelIndex, "put", no_room)
    with pytest.raises(StoreError, match="disk is full"):
        take_over(looked_at, models, ModelIndex(models))
    assert [path for path in models.rglob("*") if path.is_file()] == []
    assert (ollama / "blobs" / f"sha256-{DIGEST}").read_bytes() == MODEL
