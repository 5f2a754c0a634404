"""Finds the models of other programs: Ollama, LM Studio, Jan and the Hugging Face cache, by their `--from` names.

Their folders are untrusted: manifests are limited in size, digests and names are checked before they become paths, and
finders skip unreadable files.

Ollama: manifests (`manifests/<registry>/<namespace>/<model>/<tag>`, JSON, as Docker's image manifest 2.2) name blobs
by digest (`blobs/sha256-<hex>`); the blob of the model layer is a GGUF file.
LM Studio: `<publisher>/<repository>/<file>.gguf`, as on the hub. The folder is `downloadsFolder` in its settings, or
`models` in LM Studio's home, which `.lmstudio-home-pointer` in the user's home may move; older versions use
`~/.cache/lm-studio`.
Jan: `llamacpp/models/<id>/model.yml` in its data folder names the GGUF file. Paths are relative to the data folder,
or absolute for files that the user imported into Jan.
Hugging Face: `models--<org>--<repo>/snapshots/<commit>/<file>`, links into `blobs`. The snapshot in `refs/main`
counts, else the newest. The blob of an LFS file is named by its SHA-256 digest.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from jan_serve.core.split_names import PartName
from jan_serve.store.file_names import files_from, is_model_name, is_projector_name, preference
from jan_serve.store.files import TooLarge, file_stamp, read_limited
from jan_serve.store.index import SourceKind

MAX_MANIFEST_BYTES: Final = 1 << 20
MAX_FILES: Final = 20_000
MAX_DEPTH: Final = 6


class FoundFile(msgspec.Struct, frozen=True):
    """name: its future path in the models folder. sha256: as the other program claims."""

    path: Path
    name: str
    sha256: str | None = None


class FoundModel(msgspec.Struct, frozen=True):
    """A model of another program. label: its name there. aliases: additional names for requests. problem: why it
    cannot be imported, if the finder knows a reason."""

    kind: SourceKind
    label: str
    files: tuple[FoundFile, ...]
    projector: FoundFile | None = None
    aliases: tuple[str, ...] = ()
    revision: str | None = None
    problem: str = ""

    @property
    def all_files(self) -> tuple[FoundFile, ...]:
        """The projector first; the first file of a split model last, because it makes the model visible."""
        return (*((self.projector,) if self.projector else ()), *self.files[1:], self.files[0])

    @property
    def n_bytes(self) -> int:
        return sum(stamp[1] for file in self.all_files if (stamp := file_stamp(file.path)))


def read_capped(path: Path) -> bytes | None:
    """The content of a file, None if unreadable or larger than MAX_MANIFEST_BYTES."""
    try:
        return read_limited(path, MAX_MANIFEST_BYTES)
    except (OSError, TooLarge):
        return None


def walk_files(folder: Path, *, follow: bool = False) -> Iterator[Path]:
    """Files below a folder, relative to it, in order; without hidden and deeply nested ones."""
    count = 0
    for current, folders, files in os.walk(folder, followlinks=follow):
        relative = Path(current).relative_to(folder)
        deep = len(relative.parts) >= MAX_DEPTH
        folders[:] = [] if deep else sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            count += 1
            if count > MAX_FILES:
                return
            if not name.startswith("."):
                yield relative / name


def group_models(paths: list[Path]) -> Iterator[tuple[Path, ...]]:
    """The files of each model; only complete split models, no projectors."""
    known = set(paths)
    for path in paths:
        files = tuple(map(path.with_name, files_from(path.name)))
        if files and is_model_name(path.name) and known.issuperset(files):
            yield files


def projector_of(model: Path, paths: list[Path]) -> Path | None:
    """The projector in the folder of a model, the best precision first."""
    beside = [path for path in paths if path.parent == model.parent and is_projector_name(path.name)]
    return min(beside, key=lambda path: (preference(path.name), path.name), default=None)


def projector_name(model_name: str) -> str:
    """The file name for the projector of the model `model_name`, in the same folder."""
    folder, _, stem = model_name.rpartition("/")
    return f"{folder}/mmproj-{stem}.gguf"


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
        found = _ollama_model(folder, manifest, parts)
        if found is not None:
            yield found


def _ollama_model(folder: Path, manifest: _Manifest, parts: tuple[str, ...]) -> FoundModel | None:
    registry, namespace, name, tag = parts
    weights = _layer_blobs(folder, manifest, _MODEL_LAYER)
    if len(weights) != 1:
        return None  # Ollama does not split models
    shown = [part for part, default in ((registry, _REGISTRY), (namespace, _NAMESPACE)) if part != default]
    label = "/".join((*shown, f"{name}:{tag}"))
    name_here = "/".join(("ollama", *shown, f"{name}-{tag}"))
    projector = next(iter(_layer_blobs(folder, manifest, _PROJECTOR_LAYER)), None)
    has_adapter = bool(_layer_blobs(folder, manifest, _ADAPTER_LAYER))
    return FoundModel(
        kind="ollama",
        label=label,
        files=(FoundFile(weights[0][0], f"{name_here}.gguf", weights[0][1]),),
        projector=FoundFile(projector[0], projector_name(name_here), projector[1]) if projector else None,
        aliases=(label,),
        problem="it has an adapter, which would be lost" if has_adapter else "",
    )


def _layer_blobs(folder: Path, manifest: _Manifest, media_type: str) -> list[tuple[Path, str]]:
    """Path and digest of the layers of a type. An invalid digest never becomes a path."""
    found: list[tuple[Path, str]] = []
    for layer in manifest.layers:
        match = _DIGEST.match(layer.digest)
        if layer.media_type == media_type and match is not None:
            found.append((folder / "blobs" / f"sha256-{match[1]}", match[1]))
    return found


class _Settings(msgspec.Struct, frozen=True, rename="camel"):
    downloads_folder: str | None = None


def lmstudio_folders(home: Path) -> tuple[Path, ...]:
    """The models folders of the user; they may not exist. Blocks on the disk."""
    pointer = (read_capped(home / ".lmstudio-home-pointer") or b"").decode("utf-8", "replace").strip()
    program = _absolute(pointer) or home / ".lmstudio"
    downloads: Path | None = None
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        settings = read_capped(program / "settings.json") or b"{}"
        downloads = _absolute(msgspec.json.decode(settings, type=_Settings).downloads_folder)
    candidates = (downloads, program / "models", home / ".cache" / "lm-studio" / "models")
    return tuple(dict.fromkeys(folder for folder in candidates if folder is not None))


def find_lmstudio(folder: Path) -> Iterator[FoundModel]:
    """The models in one models folder. Blocks on the disk."""
    paths = list(walk_files(folder, follow=True))
    for parts in group_models(paths):
        first = parts[0]
        if len(first.parts) < 3:
            continue
        projector = projector_of(first, paths)
        yield FoundModel(
            kind="lmstudio",
            label=first.as_posix(),
            files=tuple(FoundFile(folder / part, part.as_posix()) for part in parts),
            projector=FoundFile(folder / projector, projector.as_posix()) if projector else None,
        )


def _absolute(text: str | None) -> Path | None:
    return Path(text) if text and "\0" not in text and Path(text).is_absolute() else None


_JAN_MODELS: Final = ("llamacpp", "models")


def find_jan(data_folder: Path) -> Iterator[FoundModel]:
    """The models in a Jan data folder. Blocks on the disk."""
    folder = data_folder.joinpath(*_JAN_MODELS)
    for relative in walk_files(folder):
        if relative.name != "model.yml" or len(relative.parts) < 2:
            continue
        described = _described(folder / relative)
        path = _path_below(data_folder, described.get("model_path"))
        if path is None:
            continue
        model_id = relative.parent.as_posix()
        projector = _path_below(data_folder, described.get("mmproj_path"))
        yield FoundModel(
            kind="jan",
            label=model_id,
            files=_jan_files(path, f"jan/{model_id}"),
            projector=FoundFile(projector, projector_name(f"jan/{model_id}")) if projector else None,
            aliases=(model_id,),
        )


def _jan_files(path: Path, name: str) -> tuple[FoundFile, ...]:
    part, files = PartName.parse(path.name), files_from(path.name)
    if part is None or not files:
        return (FoundFile(path, f"{name}.gguf"),)
    names = zip(files, part.all_files(stem=name), strict=True)
    return tuple(FoundFile(path.with_name(original), ours) for original, ours in names)


def _described(path: Path) -> dict[str, Any]:
    """The mapping in a model.yml; empty if invalid. The safe reader creates plain values only."""
    # Imported late: needed only if Jan is installed.
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    reader: Any = YAML(typ="safe", pure=True)
    reader.allow_duplicate_keys = True
    try:
        content: object = reader.load(read_capped(path) or b"")
    except (YAMLError, RecursionError, ValueError):
        return {}
    return cast("dict[str, Any]", content) if isinstance(content, dict) else {}


def _path_below(data_folder: Path, value: object) -> Path | None:
    if not isinstance(value, str) or not value or "\0" in value:
        return None
    path = Path(value)
    if path.is_absolute():
        return path
    return None if ".." in path.parts else data_folder / path


_REPOSITORY: Final = re.compile(r"models--([A-Za-z0-9._-]+?)--([A-Za-z0-9._-]+)\Z")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}\Z")
_SHA256: Final = re.compile(r"[0-9a-f]{64}\Z")


def find_hf_cache(cache: Path) -> Iterator[FoundModel]:
    """The GGUF models in a cache folder. Blocks on the disk."""
    try:
        repositories = sorted(path for path in cache.iterdir() if _REPOSITORY.match(path.name))
    except OSError:
        return
    for repository in repositories:
        snapshot = _snapshot(repository)
        if snapshot is None:
            continue
        repo = repository.name.removeprefix("models--").replace("--", "/", 1)
        # Follow links to files only: a cache links files, never folders.
        paths = list(walk_files(snapshot))
        for parts in group_models(paths):
            projector = projector_of(parts[0], paths)
            yield FoundModel(
                kind="hf-cache",
                label=repo,
                files=tuple(_cached_file(snapshot, repo, part) for part in parts),
                projector=_cached_file(snapshot, repo, projector) if projector else None,
                revision=snapshot.name,
            )


def _cached_file(snapshot: Path, repo: str, relative: Path) -> FoundFile:
    path = snapshot / relative
    blob = path.resolve().name
    return FoundFile(path, f"{repo}/{relative.as_posix()}", blob if _SHA256.match(blob) else None)


def _snapshot(repository: Path) -> Path | None:
    main = (read_capped(repository / "refs" / "main") or b"").decode("ascii", "replace").strip()
    if _COMMIT.match(main) and (repository / "snapshots" / main).is_dir():
        return repository / "snapshots" / main
    try:
        named = (path for path in (repository / "snapshots").iterdir() if _COMMIT.match(path.name))
        folders = [path for path in named if path.is_dir()]
        return max(folders, key=lambda path: path.stat().st_mtime_ns, default=None)
    except OSError:
        return None


FINDERS: Final[dict[str, Callable[[Path], Iterator[FoundModel]]]] = {
    "ollama": find_ollama,
    "lmstudio": find_lmstudio,
    "jan": find_jan,
    "hf": find_hf_cache,
}
TITLES: Final = {"ollama": "Ollama", "lmstudio": "LM Studio", "jan": "Jan", "hf": "Hugging Face cache"}


def find(program: str, folders: Iterable[Path]) -> list[FoundModel]:
    """The models of a program in these folders, each once. Skips missing folders. Blocks on the disk."""
    found: list[FoundModel] = []
    seen: set[Path] = set()
    for folder in folders:
        resolved = folder.resolve()
        if resolved not in seen and folder.is_dir():
            seen.add(resolved)
            found += FINDERS[program](folder)
    return found
