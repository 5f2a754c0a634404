"""Finding and linking the models of other programs, with folders as those programs lay them out."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

import pytest

from jan_serve.errors import StoreError
from jan_serve.store.imports.finders import find
from jan_serve.store.imports.found import FoundModel
from jan_serve.store.imports.link import ImportState, assess, take_over
from jan_serve.store.imports.lmstudio import lmstudio_folders
from jan_serve.store.index import ModelIndex
from jan_serve.store.resolve import ModelResolver
from tests.unit.store.gguf_builder import GgufBytes, uint_key

MODEL = GgufBytes().build()
DIGEST = hashlib.sha256(MODEL).hexdigest()
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LAYER = "application/vnd.ollama.image."


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def ollama_model(folder: Path, name: str, *layers: tuple[str, str]) -> None:
    """A manifest; name is registry/namespace/model/tag."""
    listed = [{"mediaType": LAYER + kind, "digest": digest, "size": 1} for kind, digest in layers]
    write(folder / "manifests" / name, json.dumps({"schemaVersion": 2, "layers": listed}))


@pytest.fixture
def ollama(tmp_path: Path) -> Path:
    folder = tmp_path / "ollama"
    write(folder / "blobs" / f"sha256-{DIGEST}", MODEL)
    write(folder / "blobs" / f"sha256-{'1' * 64}", MODEL)
    model = ("model", f"sha256:{DIGEST}")
    ollama_model(folder, "registry.ollama.ai/library/llama3.2/1b", model, ("template", "sha256:" + "2" * 64))
    ollama_model(
        folder, "registry.ollama.ai/someone/vision/latest", model, ("projector", "sha256:" + "1" * 64)
    )
    ollama_model(folder, "hf.co/org/repo/Q4_K_M", model)
    return folder


def by_label(found: list[FoundModel]) -> dict[str, FoundModel]:
    return {model.label: model for model in found}


def test_ollama(ollama: Path, tmp_path: Path) -> None:
    found = by_label(find("ollama", [ollama, ollama, tmp_path / "absent"]))
    assert set(found) == {"llama3.2:1b", "someone/vision:latest", "hf.co/org/repo:Q4_K_M"}
    plain = found["llama3.2:1b"]
    assert [(file.name, file.sha256) for file in plain.files] == [("ollama/llama3.2-1b.gguf", DIGEST)]
    vision = found["someone/vision:latest"]
    assert vision.files[0].name == "ollama/someone/vision-latest.gguf"
    assert (
        vision.projector is not None and vision.projector.name == "ollama/someone/mmproj-vision-latest.gguf"
    )


@pytest.mark.parametrize(
    "digest",
    ["sha256:../../../etc/passwd", "sha256:" + "A" * 64, "sha256-" + "0" * 64, "../x", "sha256:" + "0" * 65],
)
def test_ollama_digests_never_become_paths(tmp_path: Path, digest: str) -> None:
    ollama_model(tmp_path, "registry.ollama.ai/library/x/latest", ("model", digest))
    assert find("ollama", [tmp_path]) == []


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[" * 99_999, b"\xff", b"x" * (2 << 20), b'{"layers": [1]}']
)
def test_ollama_manifests_that_are_none_are_left_out(ollama: Path, content: bytes) -> None:
    write(ollama / "manifests/registry.ollama.ai/library/bad/latest", content)
    assert len(find("ollama", [ollama])) == 3


def test_ollama_models_with_adapters_are_shown_with_the_reason(ollama: Path, tmp_path: Path) -> None:
    layers = ("model", f"sha256:{DIGEST}"), ("adapter", "sha256:" + "1" * 64)
    ollama_model(ollama, "registry.ollama.ai/library/tuned/latest", *layers)
    looked_at = assess(by_label(find("ollama", [ollama]))["tuned:latest"], tmp_path / "models")
    assert (looked_at.state, looked_at.reason) == (
        ImportState.UNUSABLE,
        "it has an adapter, which would be lost",
    )


def test_lmstudio(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    write(folder / "pub" / "Repo-GGUF" / "m-Q4_K_M.gguf", MODEL)
    write(folder / "pub" / "Repo-GGUF" / "mmproj-m-f16.gguf", MODEL)
    write(folder / "pub" / "Repo-GGUF" / "model.safetensors", b"")
    write(folder / "loose.gguf", MODEL)
    (model,) = find("lmstudio", [folder])
    assert model.files[0].name == "pub/Repo-GGUF/m-Q4_K_M.gguf"
    assert model.projector is not None and model.projector.path.name == "mmproj-m-f16.gguf"


def test_where_lmstudio_keeps_its_models(tmp_path: Path) -> None:
    assert lmstudio_folders(tmp_path) == (tmp_path / ".lmstudio/models", tmp_path / ".cache/lm-studio/models")
    elsewhere, downloads = tmp_path / "elsewhere", tmp_path / "downloads"
    write(tmp_path / ".lmstudio-home-pointer", f"{elsewhere}\n")
    write(elsewhere / "settings.json", json.dumps({"downloadsFolder": str(downloads), "other": 1}))
    assert lmstudio_folders(tmp_path)[:2] == (downloads, elsewhere / "models")
    for bad in (b"relative/path", b"\0", b""):
        write(tmp_path / ".lmstudio-home-pointer", bad)
        assert lmstudio_folders(tmp_path)[0] == tmp_path / ".lmstudio/models"
    write(tmp_path / ".lmstudio" / "settings.json", "{")
    assert lmstudio_folders(tmp_path)[0] == tmp_path / ".lmstudio/models"


def test_jan(tmp_path: Path) -> None:
    data = tmp_path / "data"
    outside = write(tmp_path / "downloads" / "own.gguf", MODEL)
    write(data / "llamacpp/models/org/model/model.gguf", MODEL)
    write(data / "llamacpp/models/org/model/mmproj.gguf", MODEL)
    described = "model_path: llamacpp/models/org/model/model.gguf\nmmproj_path: llamacpp/models/org/model/mmproj.gguf\n"
    write(
        data / "llamacpp/models/org/model/model.yml",
        described + "name: Model\nsize_bytes: 7\nembedding: false\n",
    )
    write(data / "llamacpp/models/own/model.yml", f"model_path: {json.dumps(str(outside))}\n")
    write(data / "llamacpp/models/up/model.yml", "model_path: ../../etc/passwd\n")
    write(data / "llamacpp/models/bad/model.yml", "model_path: [1\n")
    write(data / "llamacpp/models/list/model.yml", "- 1\n")
    write(data / "llamacpp/models/code/model.yml", "model_path: !!python/object/apply:os.system ['exit 1']\n")
    found = by_label(find("jan", [data]))
    assert set(found) == {"org/model", "own"}
    assert found["org/model"].files[0].name == "jan/org/model.gguf"
    assert found["org/model"].projector is not None
    assert found["own"].files[0].path == outside


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    repository = tmp_path / "hub" / "models--org--Repo-GGUF"
    blob = write(repository / "blobs" / DIGEST, MODEL)
    for commit in ("f" * 40, COMMIT):
        link = repository / "snapshots" / commit / "m-Q8_0.gguf"
        link.parent.mkdir(parents=True)
        link.symlink_to(os.path.relpath(blob, link.parent))
    write(repository / "refs" / "main", COMMIT)
    write(tmp_path / "hub" / "datasets--org--x" / "refs" / "main", COMMIT)
    return tmp_path / "hub"


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_hf_cache(cache: Path) -> None:
    (model,) = find("hf", [cache])
    assert (model.label, model.revision) == ("org/Repo-GGUF", COMMIT)
    assert [(file.name, file.sha256) for file in model.files] == [("org/Repo-GGUF/m-Q8_0.gguf", DIGEST)]
    (cache / "models--org--Repo-GGUF" / "refs" / "main").write_text("../../x")
    (model,) = find("hf", [cache])
    assert model.revision in (COMMIT, "f" * 40)


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
        assert looked_at.state is ImportState.NEW, looked_at.reason
        record = take_over(looked_at, models, index)
        assert (models / record.files[0].path).samefile(model.files[0].path)
        assert assess(model, models).state is ImportState.HERE
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
    assert assess(model, models).state is ImportState.NEW
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


def test_a_name_of_part_one_of_none_stops_no_finder(tmp_path: Path) -> None:
    name = "m-00001-of-00000.gguf"
    write(tmp_path / "lm" / "p" / "r" / name, MODEL)
    assert find("lmstudio", [tmp_path / "lm"]) == []
    write(tmp_path / "jan" / "elsewhere" / name, MODEL)
    write(tmp_path / "jan" / "llamacpp" / "models" / "m" / "model.yml", f"model_path: elsewhere/{name}\n")
    (model,) = find("jan", [tmp_path / "jan"])
    assert [file.path.name for file in model.files] == [name]


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
