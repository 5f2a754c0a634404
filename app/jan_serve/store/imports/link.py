"""Takes a found model over: links its files into the models folder and records where they come from.

A hard link where the file system allows one: the model stays when the other program deletes it. Else a symbolic link,
which ends with the original. Nothing is copied, and nothing outside the models folder is written.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath

from jan_serve.core.listed_model import HeaderFacts
from jan_serve.errors import JanServeError
from jan_serve.store.files.disk import storage_error
from jan_serve.store.gguf.facts import facts_of
from jan_serve.store.gguf.model_file import read_model_file
from jan_serve.store.hub.references import is_safe_file
from jan_serve.store.imports.found import FoundFile, FoundModel
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source
from jan_serve.store.names import name_of


class State(Enum):
    """What importing a found model would do."""

    NEW = "new"
    HERE = "already here"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class Assessment:
    """A found model, looked at. `reason` says why it is unusable."""

    found: FoundModel
    name: str
    state: State
    reason: str = ""
    facts: HeaderFacts | None = None


def assess(found: FoundModel, models_dir: Path) -> Assessment:
    """Whether a found model can be taken over. Reads its header; blocks on the disk."""
    name = name_of(PurePosixPath(found.files[0].name))
    files = (*found.files, *((found.projector,) if found.projector else ()))
    if not all(is_safe_file(file.name) for file in files):
        return Assessment(found, name, State.UNUSABLE, "its name cannot be used here")
    if found.problem:
        return Assessment(found, name, State.UNUSABLE, found.problem)
    missing = [file for file in found.files if not file.path.is_file()]
    if missing:
        return Assessment(found, name, State.UNUSABLE, f"{missing[0].path.name} is missing")
    targets = [(file, models_dir / file.name) for file in found.files]
    if all(_is_same(file.path, target) for file, target in targets):
        return Assessment(found, name, State.HERE)
    taken = [
        target for file, target in targets if os.path.lexists(target) and not _is_same(file.path, target)
    ]
    if taken and not all(_is_dangling(target) for target in taken):
        return Assessment(found, name, State.UNUSABLE, "another file has its name here")
    try:
        facts = facts_of(read_model_file(found.files[0].path))
    except JanServeError as error:
        return Assessment(found, name, State.UNUSABLE, error.message)
    return Assessment(found, name, State.NEW, facts=facts)


def take_over(assessment: Assessment, models_dir: Path, index: ModelIndex) -> ModelRecord:
    """Link the files of a model whose state is NEW, and record it. Raises StoreError; links made so far go then."""
    found = assessment.found
    made: list[Path] = []
    # The first file of a split model comes last: with it the model is listed.
    files = (*((found.projector,) if found.projector else ()), *found.files[1:], found.files[0])
    try:
        for file in files:
            target = models_dir / file.name
            if not _is_same(file.path, target):
                _link(file.path.resolve(strict=True), target)
                made.append(target)
        record = _record(assessment, models_dir)
        index.put(record)
    except OSError as error:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink()
        raise storage_error(error, models_dir) from error
    return record


def _record(assessment: Assessment, models_dir: Path) -> ModelRecord:
    found = assessment.found
    first = models_dir / found.files[0].name
    is_repository = found.kind == "hf-cache"
    return ModelRecord(
        name=assessment.name,
        source=Source(
            kind=found.kind,
            name=found.label,
            revision=found.revision if is_repository else None,
            path=str(found.files[0].path.resolve()),
        ),
        files=tuple(_file_record(file, models_dir) for file in found.files),
        projector=_file_record(found.projector, models_dir) if found.projector else None,
        modified_ns=first.stat().st_mtime_ns,
        added_at=time.time(),
        aliases=found.aliases,
        facts=assessment.facts,
    )


def _file_record(file: FoundFile, models_dir: Path) -> FileRecord:
    return FileRecord(path=file.name, size_bytes=(models_dir / file.name).stat().st_size, sha256=file.sha256)


def _link(original: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if _is_dangling(target):
        target.unlink()
    try:
        os.link(original, target)
    except OSError:
        # Another file system, or a file of another user's that may not be linked.
        os.symlink(original, target)


def _is_same(path: Path, target: Path) -> bool:
    try:
        return target.samefile(path)
    except OSError:
        return False


def _is_dangling(path: Path) -> bool:
    return path.is_symlink() and not path.exists()
