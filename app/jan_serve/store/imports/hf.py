"""The Hugging Face cache: `models--<org>--<repo>/snapshots/<commit>/<file>`, links into `blobs`.

Uses the snapshot in `refs/main`, else the newest. The blob of an LFS file is named by its SHA-256 digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from jan_serve.store.imports.found import (
    FoundFile,
    FoundModel,
    group_models,
    projector_of,
    read_capped,
    walk_files,
)

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
                files=tuple(_file(snapshot, repo, part) for part in parts),
                projector=_file(snapshot, repo, projector) if projector else None,
                revision=snapshot.name,
            )


def _file(snapshot: Path, repo: str, relative: Path) -> FoundFile:
    path = snapshot / relative
    blob = path.resolve().name
    return FoundFile(path, f"{repo}/{relative.as_posix()}", blob if _SHA256.match(blob) else None)


def _snapshot(repository: Path) -> Path | None:
    main = (read_capped(repository / "refs" / "main") or b"").decode("ascii", "replace").strip()
    if _COMMIT.match(main) and (repository / "snapshots" / main).is_dir():
        return repository / "snapshots" / main
    try:
        snapshots = [
            path
            for path in (repository / "snapshots").iterdir()
            if _COMMIT.match(path.name) and path.is_dir()
        ]
        return max(snapshots, key=lambda path: path.stat().st_mtime_ns, default=None)
    except OSError:
        return None
