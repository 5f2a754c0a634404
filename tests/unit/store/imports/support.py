"""A model, and the folders of other programs as they lay them out."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from jan_serve.store.imports.finders import FoundModel
from tests.unit.store.gguf_builder import GgufBytes

MODEL = GgufBytes().build()
DIGEST = hashlib.sha256(MODEL).hexdigest()
COMMIT = "0123456789abcdef0123456789abcdef01234567"
_LAYER = "application/vnd.ollama.image."


def write(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def ollama_model(folder: Path, name: str, *layers: tuple[str, str]) -> None:
    """A manifest; name is registry/namespace/model/tag."""
    listed = [{"mediaType": _LAYER + kind, "digest": digest, "size": 1} for kind, digest in layers]
    write(folder / "manifests" / name, json.dumps({"schemaVersion": 2, "layers": listed}))


def by_label(found: list[FoundModel]) -> dict[str, FoundModel]:
    return {model.label: model for model in found}
