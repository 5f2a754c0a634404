"""Deleting: what goes, what is shared and stays, and that no link is ever followed (fault 54)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jan_serve.errors import InvalidRequest
from jan_serve.store.index import FileRecord, ModelEntry, ModelIndex, ModelRecord, Source
from jan_serve.store.remove import is_own_file, remove_model
from jan_serve.store.resolve import ModelResolver


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


def put(models: Path, name: str, *files: str, projector: str | None = None, kind: str = "hub") -> None:
    """Files of one byte each with a record for them."""
    for file in (*files, *((projector,) if projector else ())):
        path = models / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(path):
            path.write_bytes(b"G")
    ModelIndex(models).put(
        ModelRecord(
            name=name,
            source=Source(kind="hub" if kind == "hub" else "folder"),
            files=tuple(FileRecord(path=file, size_bytes=1) for file in files),
            projector=FileRecord(path=projector, size_bytes=1) if projector else None,
            modified_ns=(models / files[0]).stat().st_mtime_ns,
            added_at=0,
        )
    )


def entry(models: Path, name: str) -> ModelEntry:
    return ModelResolver(models, index=ModelIndex(models)).resolve(name)


def names(models: Path) -> list[str]:
    return [item.name for item in ModelResolver(models, index=ModelIndex(models)).entries()]


def test_files_record_and_empty_folders_go(models: Path) -> None:
    parts = [f"org/repo/Q4/m-0000{n}-of-00002.gguf" for n in (1, 2)]
    put(models, "org/repo/Q4/m", *parts, projector="org/repo/mmproj.gguf")
    put(models, "org/other/x", "org/other/x.gguf")
    removed = remove_model(entry(models, "org/repo/Q4/m"), models, ModelIndex(models))
    assert removed.n_freed == 3
    assert len(removed.paths) == 3
    assert removed.paths[0].name == "m-00001-of-00002.gguf"
    assert not (models / "org" / "repo").exists()
    assert names(models) == ["org/other/x"]
    assert list(ModelIndex(models).records()) == ["org/other/x"]
    remove_model(entry(models, "org/other/x"), models, ModelIndex(models))
    assert models.is_dir()


def test_a_projector_stays_while_another_model_uses_it(models: Path) -> None:
    put(models, "r/a", "r/a.gguf", projector="r/mmproj.gguf")
    put(models, "r/b", "r/b.gguf", projector="r/mmproj.gguf")
    remove_model(entry(models, "r/a"), models, ModelIndex(models))
    assert (models / "r/mmproj.gguf").exists()
    remove_model(entry(models, "r/b"), models, ModelIndex(models))
    assert not (models / "r").exists()


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_links_go_and_their_targets_stay(models: Path, tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    blob.write_bytes(b"G")
    models.mkdir()
    (models / "soft.gguf").symlink_to(blob)
    os.link(blob, models / "hard.gguf")
    put(models, "soft", "soft.gguf")
    put(models, "hard", "hard.gguf")
    for name in ("soft", "hard"):
        assert remove_model(entry(models, name), models, ModelIndex(models)).n_freed == 0
    assert blob.read_bytes() == b"G"
    assert names(models) == []


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_paths_in_a_record_never_lead_out(models: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.gguf").write_bytes(b"G")
    models.mkdir()
    (models / "door").symlink_to(outside)
    absolute = str(outside / "precious.gguf")
    put(models, "m", "m.gguf", "../outside/precious.gguf", "door/precious.gguf", projector=absolute)
    remove_model(entry(models, "m"), models, ModelIndex(models))
    assert (outside / "precious.gguf").read_bytes() == b"G"
    assert not (models / "m.gguf").exists()


def test_models_elsewhere_are_not_removed(models: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"G")
    resolver = ModelResolver(models, default=str(path), builtin=("jan-tiny", path))
    with pytest.raises(InvalidRequest, match="is not in the models folder"):
        remove_model(resolver.resolve("mine"), models, ModelIndex(models))
    with pytest.raises(InvalidRequest, match="ships with jan-serve"):
        remove_model(resolver.resolve("jan-tiny"), models, ModelIndex(models))
    assert path.exists()


def test_who_put_it_there(models: Path) -> None:
    put(models, "pulled", "pulled.gguf")
    put(models, "seen", "seen.gguf", kind="folder")
    (models / "new.gguf").write_bytes(b"G")
    assert [is_own_file(entry(models, name)) for name in ("pulled", "seen", "new")] == [True, False, False]
    (models / "split-00001-of-00002.gguf").write_bytes(b"G")
    (models / "split-00002-of-00002.gguf").write_bytes(b"G")
    assert len(remove_model(entry(models, "split"), models, ModelIndex(models)).paths) == 2
