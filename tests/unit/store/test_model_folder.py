"""The models in a folder, and how one is deleted."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from jan_serve.errors import InvalidRequest
from jan_serve.store import model_folder
from jan_serve.store.index import FileRecord, ModelEntry, ModelIndex, ModelRecord, Source
from jan_serve.store.model_folder import ModelFolder, is_own_file, remove_model
from jan_serve.store.resolve import ModelResolver
from tests.unit.store.gguf_builder import GgufBytes, string_key


def by_name(folder: ModelFolder) -> dict[str, ModelEntry]:
    return {entry.name: entry for entry in folder.entries()}


def _replaced_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _moved_down(path: Path) -> None:
    path.with_name("deeper").mkdir()
    path.rename(path.parent / "deeper" / path.name)


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda path: path.write_bytes(b"GGUF and more"),
    "time": lambda path: os.utime(path, ns=(1, 1)),
    "a projector beside it": lambda path: path.with_name("mmproj-llama-3.2-1b.gguf").touch(),
    "a record": lambda path: ModelIndex(path.parents[1]).put(record_of(path)),
    "removed": lambda path: path.unlink(),
    "another kind of file": _replaced_by_folder,
    "renamed": lambda path: path.rename(path.with_name("other.gguf")),
    "moved into a folder of its own": _moved_down,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_only_what_changed_is_made_again(tmp_path: Path, change: Callable[[Path], object]) -> None:
    name = "other/llama-3.2-1b"
    for each in (name, "other/llama-3.2-3b", "one"):
        path = tmp_path / f"{each}.gguf"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"GGUF")
    folder = ModelFolder(tmp_path, ModelIndex(tmp_path))
    before = by_name(folder)
    change(tmp_path / f"{name}.gguf")
    after = by_name(folder)
    assert after == by_name(ModelFolder(tmp_path, ModelIndex(tmp_path)))
    assert after.get(name) != before.pop(name)
    assert all(after[other] is entry for other, entry in before.items())


def test_names_are_looked_at_again_only_in_folders_where_they_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("a", "b", "c"):
        (tmp_path / each).mkdir()
        (tmp_path / each / "one.gguf").write_bytes(b"GGUF")
    folder = ModelFolder(tmp_path, None)
    looked_at: list[list[str]] = []

    def watch(files: list[str], _: list[str]) -> Callable[[str], tuple[str, ...]]:
        looked_at.append(files)
        return lambda _: ()

    monkeypatch.setattr(model_folder, "projectors_among", watch)
    assert sorted(by_name(folder)) == ["a/one", "b/one", "c/one"]
    assert sorted(looked_at) == [[], ["one.gguf"], ["one.gguf"], ["one.gguf"]]
    looked_at.clear()
    assert sorted(by_name(folder)) == ["a/one", "b/one", "c/one"]
    assert looked_at == []
    (tmp_path / "b" / "two.gguf").write_bytes(b"GGUF")
    assert sorted(by_name(folder)) == ["a/one", "b/one", "b/two", "c/one"]
    assert [sorted(files) for files in looked_at] == [["one.gguf", "two.gguf"]]


@pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="file names are Unicode")
def test_names_that_are_not_utf_8_are_skipped_with_a_line_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good = tmp_path / "modèle.gguf"
    good.write_bytes(b"GGUF")
    for name in (b"m\xe8.gguf", b"mmproj-mod\xe8le.gguf", b"notes\xe8.txt"):
        (tmp_path / os.fsdecode(name)).write_bytes(b"GGUF")
    below = tmp_path / os.fsdecode(b"d\xe8")
    below.mkdir()
    (below / "one.gguf").write_bytes(b"GGUF")
    folder = ModelFolder(tmp_path, None)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            (entry,) = folder.entries()
            assert (entry.name, entry.path, entry.projectors) == ("modèle", good, ())
        (tmp_path / "more.gguf").write_bytes(b"GGUF")
        assert sorted(by_name(folder)) == ["modèle", "more"]
    files = sorted(getattr(record, "file", "") for record in caplog.records)
    assert files == ["d\\udce8", "m\\udce8.gguf", "mmproj-mod\\udce8le.gguf"]
    assert "modèle" in msgspec.json.encode([entry.name for entry in folder.entries()]).decode()


def record_of(path: Path) -> ModelRecord:
    status = path.stat()
    return ModelRecord(
        name="other/llama-3.2-1b",
        source=Source(kind="folder"),
        files=(FileRecord(path="other/llama-3.2-1b.gguf", size_bytes=status.st_size),),
        modified_ns=status.st_mtime_ns,
        added_at=0.0,
    )


def projector_bytes(**keys: str) -> bytes:
    return GgufBytes(
        architecture=None, keys=[string_key(name.replace("_", "."), text) for name, text in keys.items()]
    ).build()


PROJECTORS = {
    "by its type": projector_bytes(general_architecture="llama", general_type="mmproj"),
    "by its architecture": projector_bytes(general_architecture="clip"),
}


@pytest.mark.parametrize("content", PROJECTORS.values(), ids=PROJECTORS)
def test_a_projector_without_the_mark_in_its_name_is_no_model(tmp_path: Path, content: bytes) -> None:
    folder = ModelFolder(tmp_path, None)
    model, projector, other = (tmp_path / f"{name}.gguf" for name in ("gem-3-Q4_K_M", "gem-3-vision", "eye"))
    model.write_bytes(GgufBytes().build())
    projector.write_bytes(content)
    other.write_bytes(content)
    for _ in range(2):
        found = by_name(folder)
        assert list(found) == ["gem-3-Q4_K_M"]
        assert found["gem-3-Q4_K_M"].projectors == (projector,)
    projector.write_bytes(GgufBytes().build())
    os.utime(projector, ns=(1, 1))
    found = by_name(folder)
    assert sorted(found) == ["gem-3-Q4_K_M", "gem-3-vision"]
    assert found["gem-3-Q4_K_M"].projectors == ()


def test_words_about_projectors_make_a_file_none(tmp_path: Path) -> None:
    keys = [string_key("general.description", "general.type mmproj, general.architecture clip")]
    (tmp_path / "one.gguf").write_bytes(GgufBytes(keys=keys).build())
    assert list(by_name(ModelFolder(tmp_path, None))) == ["one"]


def test_only_files_that_are_new_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.gguf").write_bytes(GgufBytes().build())
    index = ModelIndex(tmp_path)
    index.put(msgspec.structs.replace(record_of(tmp_path / "two.gguf"), name="two"))
    opened: list[str] = []

    def watch(path: Path) -> bool:
        opened.append(path.name)
        return False

    monkeypatch.setattr(model_folder, "is_projector_file", watch)
    folder = ModelFolder(tmp_path, index)
    for _ in range(2):
        assert len(by_name(folder)) == 2
    assert opened == ["one.gguf"]


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
