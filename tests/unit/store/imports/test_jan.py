"""Finding Jan's models."""

from __future__ import annotations

import json
from pathlib import Path

from jan_serve.store.imports.finders import find
from tests.unit.store.imports.support import MODEL, by_label, write


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
