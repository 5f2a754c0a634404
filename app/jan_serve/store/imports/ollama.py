"""Ollama's models: manifests name blobs by digest; the model layer's blob is a GGUF file.

Layout: `manifests/<registry>/<namespace>/<model>/<tag>` (JSON, as Docker's image manifest 2.2), `blobs/sha256-<hex>`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from jan_serve.store.imports.found import FoundFile, FoundModel, projector_name, read_capped, walk_files

_MODEL_LAYER: Final = "application/vnd.ollama.image.model"
_PROJECTOR_LAYER: Final = "application/vnd.ollama.image.projector"
_ADAPTER_LAYER: Final = "application/vnd.ollama.image.adapter"
_DIGEST: Final = re.compile(r"sha256:([0-9a-f]{64})\Z")
_NAME_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}\Z")
_REGISTRY: Final = "registry.ollama.ai"
_NAMESPACE: Final = "library"


class _Layer(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str
    digest: str


class _Manifest(msgspec.Struct, frozen=True):
    layers: list[_Layer]


def find_ollama(folder: Path) -> Iterator[FoundModel]:
    """The models in an Ollama models folder. Blocks on the disk."""
    manifests = folder / "manifests"
    for relative in walk_files(manifests):
        parts = relative.parts
        if len(parts) != 4 or not all(_NAME_PART.match(part) for part in parts):
            continue
        content = read_capped(manifests / relative)
        try:
            manifest = msgspec.json.decode(content or b"", type=_Manifest)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        found = _model(folder, manifest, parts)
        if found is not None:
            yield found


def _model(folder: Path, manifest: _Manifest, parts: tuple[str, ...]) -> FoundModel | None:
    registry, namespace, name, tag = parts
    weights = _blobs(folder, manifest, _MODEL_LAYER)
    if len(weights) != 1:
        return None  # Ollama does not split models
    shown = [part for part, default in ((registry, _REGISTRY), (namespace, _NAMESPACE)) if part != default]
    label = "/".join((*shown, f"{name}:{tag}"))
    name_here = "/".join(("ollama", *shown, f"{name}-{tag}"))
    path, digest = weights[0]
    projectors = _blobs(folder, manifest, _PROJECTOR_LAYER)
    return FoundModel(
        kind="ollama",
        label=label,
        files=(FoundFile(path, f"{name_here}.gguf", digest),),
        projector=FoundFile(projectors[0][0], projector_name(name_here), projectors[0][1])
        if projectors
        else None,
        aliases=(label,),
        problem="it has an adapter, which would be lost" if _blobs(folder, manifest, _ADAPTER_LAYER) else "",
    )


def _blobs(folder: Path, manifest: _Manifest, media_type: str) -> list[tuple[Path, str]]:
    """Path and digest of the layers of a type. An invalid digest never becomes a path."""
    found: list[tuple[Path, str]] = []
    for layer in manifest.layers:
        match = _DIGEST.match(layer.digest)
        if layer.media_type == media_type and match is not None:
            found.append((folder / "blobs" / f"sha256-{match[1]}", match[1]))
    return found
