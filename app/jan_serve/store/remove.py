"""Deletes a model from the models folder: its files, its record, its calibration and empty folders. Follows no links.

The caller checks that the model is not in use. Files that other models use stay.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from stat import S_ISREG

import msgspec

from jan_serve.errors import InvalidRequest
from jan_serve.store.calibrations import CalibrationIndex
from jan_serve.store.files.file_errors import storage_error
from jan_serve.store.gguf.split_files import PartName
from jan_serve.store.index import ModelEntry, ModelIndex


class Removed(msgspec.Struct, frozen=True):
    """n_freed: freed bytes of disk space; deleting a link frees none."""

    name: str
    paths: tuple[Path, ...]
    n_freed: int


def is_own_file(entry: ModelEntry) -> bool:
    """Whether jan-serve added the model (by pull or import), not the user."""
    return entry.record is not None and entry.record.source.kind != "folder"


def check_removable(entry: ModelEntry, models_dir: Path) -> None:
    """Raises InvalidRequest for a model outside the models folder: the built-in one, or --model."""
    if entry.origin != "models folder" or not entry.path.is_relative_to(models_dir):
        where = (
            "ships with jan-serve"
            if entry.origin == "built in"
            else f"is not in the models folder {models_dir}"
        )
        raise InvalidRequest(f"The model `{entry.name}` {where}; it is not removed.", param="model")


def remove_model(entry: ModelEntry, models_dir: Path, index: ModelIndex) -> Removed:
    """Raises InvalidRequest for a model outside the models folder, StoreError if it cannot be deleted."""
    check_removable(entry, models_dir)
    paths = [path for path in _paths(entry, models_dir, index) if os.path.lexists(path)]
    n_freed = 0
    try:
        # Delete the first file first: without it, remaining files are not listed as a model.
        for path in paths:
            status = path.lstat()
            path.unlink()
            if S_ISREG(status.st_mode) and status.st_nlink == 1:
                n_freed += status.st_size
        index.remove(entry.name)
        CalibrationIndex(models_dir).remove(entry.name)
        for folder in {parent for path in paths for parent in path.parents}:
            _remove_if_empty(folder, models_dir)
    except OSError as error:
        raise storage_error(error, models_dir) from error
    return Removed(entry.name, tuple(paths), n_freed)


def _paths(entry: ModelEntry, models_dir: Path, index: ModelIndex) -> list[Path]:
    """The files of the model, the first one first."""
    paths = [entry.path, *_later_parts(entry.path)]
    if entry.record is None:
        return paths
    others = [record for name, record in index.records().items() if name != entry.name]
    used = {file.path for other in others for file in other.files}
    used |= {other.projector.path for other in others if other.projector}
    recorded = [*entry.record.files, *((entry.record.projector,) if entry.record.projector else ())]
    for file in recorded:
        path = models_dir.joinpath(*PurePosixPath(file.path).parts)
        # Records are untrusted: their paths must be inside the folder, without links.
        if file.path not in used and path not in paths and _is_inside(path, models_dir):
            paths.append(path)
    return paths


def _later_parts(first: Path) -> list[Path]:
    name = PartName.parse(first.name)
    if name is None:
        return []
    return [
        path
        for path in first.parent.iterdir()
        if (part := PartName.parse(path.name)) is not None
        and part.number > 1
        and (part.stem, part.count) == (name.stem, name.count)
    ]


def _is_inside(path: Path, models_dir: Path) -> bool:
    if ".." in path.parts or not path.is_relative_to(models_dir):
        return False
    return path.parent.resolve() == models_dir.resolve() / path.parent.relative_to(models_dir)


def _remove_if_empty(folder: Path, models_dir: Path) -> None:
    """Remove an empty folder and parents that become empty, except the models folder."""
    while folder != models_dir and folder.is_relative_to(models_dir):
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
