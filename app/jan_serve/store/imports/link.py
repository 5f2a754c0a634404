"""Imports a found model without a copy: a hard link, which outlives the other program's file, else a symbolic link."""

from __future__ import annotations

import contextlib
import os
import time
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from jan_serve.core.models import HeaderFacts
from jan_serve.errors import JanServeError
from jan_serve.store.files import storage_error
from jan_serve.store.gguf.model_file import read_model_file
from jan_serve.store.hub.references import is_safe_file
from jan_serve.store.imports.finders import FoundFile, FoundModel
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source
from jan_serve.store.model_names import canonical_name

NAME_TAKEN: Final = "another file has its name here"


class ImportStatus(Enum):
    """The result of assessing a found model."""

    NEW = "new"
    HERE = "already here"
    UNUSABLE = "unusable"


class Assessment(msgspec.Struct, frozen=True):
    """reason: why the model is unusable. facts: of its header, once that is read."""

    found: FoundModel
    name: str
    state: ImportStatus
    reason: str = ""
    facts: HeaderFacts | None = None


def assess(found: FoundModel, models_dir: Path) -> Assessment:
    """Check whether a found model can be imported. Reads its header; blocks on the disk."""
    assessment = looked_at(found, models_dir)
    if assessment.state is not ImportStatus.NEW:
        return assessment
    try:
        facts = read_model_file(found.files[0].path).facts()
    except JanServeError as error:
        return Assessment(found, assessment.name, ImportStatus.UNUSABLE, error.message)
    return msgspec.structs.replace(assessment, facts=facts)


def looked_at(found: FoundModel, models_dir: Path) -> Assessment:
    """The same, without a look into its file."""
    name = canonical_name(PurePosixPath(found.files[0].name))
    problem = found.problem
    if not all(is_safe_file(file.name) for file in found.all_files):
        problem = "its name cannot be used here"
    elif not problem and (missing := [file for file in found.files if not file.path.is_file()]):
        problem = f"{missing[0].path.name} is missing"
    if not problem:
        others = [models_dir / file.name for file in found.files if not _is_same(file, models_dir)]
        if not others:
            return Assessment(found, name, ImportStatus.HERE)
        if any(os.path.lexists(target) and not _is_dangling(target) for target in others):
            problem = NAME_TAKEN
    return Assessment(found, name, ImportStatus.UNUSABLE if problem else ImportStatus.NEW, problem)


def take_over(assessment: Assessment, models_dir: Path, index: ModelIndex) -> ModelRecord:
    """Link and record a model whose state is NEW. Raises StoreError, and then removes the new links."""
    found = assessment.found
    made: list[Path] = []
    try:
        for file in found.all_files:
            target = models_dir / file.name
            if not _is_same(file, models_dir):
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
    path = str(found.files[0].path.resolve())
    return ModelRecord(
        name=assessment.name,
        source=Source(kind=found.kind, name=found.label, revision=found.revision, path=path),
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
        # Another file system, or a file of another user that may not be hard-linked.
        os.symlink(original, target)


def _is_same(file: FoundFile, models_dir: Path) -> bool:
    try:
        return (models_dir / file.name).samefile(file.path)
    except OSError:
        return False


def _is_dangling(path: Path) -> bool:
    return path.is_symlink() and not path.exists()
