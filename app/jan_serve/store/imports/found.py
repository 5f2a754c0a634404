"""Models of other programs, and helpers to find them.

Other programs' folders are untrusted: manifests are limited in size, digests and names are checked before they become
paths, and finders skip unreadable files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from jan_serve.store.files.small_files import TooLarge, read_limited
from jan_serve.store.gguf.split_files import files_from
from jan_serve.store.index import SourceKind
from jan_serve.store.projectors import is_model_name, is_projector_name, preference

MAX_MANIFEST_BYTES: Final = 1 << 20
MAX_FILES: Final = 20_000
MAX_DEPTH: Final = 6


class FoundFile(msgspec.Struct, frozen=True):
    """name: its future path in the models folder. sha256: as the other program claims."""

    path: Path
    name: str
    sha256: str | None = None


class FoundModel(msgspec.Struct, frozen=True):
    """A model of another program. label: its name there. aliases: additional names for requests.

    problem: why it cannot be imported, if the finder knows a reason.
    """

    kind: SourceKind
    label: str
    files: tuple[FoundFile, ...]
    projector: FoundFile | None = None
    aliases: tuple[str, ...] = ()
    revision: str | None = None
    problem: str = ""

    @property
    def n_bytes(self) -> int:
        """Size of all existing files."""
        files = (*self.files, *((self.projector,) if self.projector else ()))
        return sum(_size(file.path) for file in files)


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


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
