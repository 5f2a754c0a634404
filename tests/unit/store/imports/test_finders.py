"""Finding Ollama's models, in folders as it lays them out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jan_serve.store.imports.finders import find, lmstudio_folders
from jan_serve.store.imports.link import ImportStatus, assess
from tests.unit.store.imports.support import COMMIT, DIGEST, MODEL, by_label, ollama_model, write


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
        ImportStatus.UNUSABLE,
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
    write(data / "llamacpp/models/deep/model.yml", "model_path: " + "[" * 10_000)
    write(data / "llamacpp/models/bytes/model.yml", b"model_path: \xff\n")
    write(data / "llamacpp/models/twice/model.yml", f"a: 1\na: 2\nmodel_path: {json.dumps(str(outside))}\n")
    write(data / "llamacpp/models/code/model.yml", "model_path: !!python/object/apply:os.system ['exit 1']\n")
    found = by_label(find("jan", [data]))
    assert set(found) == {"org/model", "own", "twice"}
    assert found["org/model"].files[0].name == "jan/org/model.gguf"
    assert found["org/model"].projector is not None
    assert found["own"].files[0].path == outside


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_hf_cache(cache: Path) -> None:
    (model,) = find("hf", [cache])
    assert (model.label, model.revision) == ("org/Repo-GGUF", COMMIT)
    assert [(file.name, file.sha256) for file in model.files] == [("org/Repo-GGUF/m-Q8_0.gguf", DIGEST)]
    (cache / "models--org--Repo-GGUF" / "refs" / "main").write_text("../../x")
    (model,) = find("hf", [cache])
    assert model.revision in (COMMIT, "f" * 40)


def test_a_name_of_part_one_of_none_stops_no_finder(tmp_path: Path) -> None:
    name = "m-00001-of-00000.gguf"
    write(tmp_path / "lm" / "p" / "r" / name, MODEL)
    assert find("lmstudio", [tmp_path / "lm"]) == []
    write(tmp_path / "jan" / "elsewhere" / name, MODEL)
    write(tmp_path / "jan" / "llamacpp" / "models" / "m" / "model.yml", f"model_path: elsewhere/{name}\n")
    (model,) = find("jan", [tmp_path / "jan"])
    assert [file.path.name for file in model.files] == [name]
