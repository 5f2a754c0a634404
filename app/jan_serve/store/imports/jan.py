"""Jan's models: `llamacpp/models/<id>/model.yml` in its data folder names the GGUF file.

Paths are relative to the data folder, or absolute for files that the user imported into Jan.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from jan_serve.store.gguf.model_file import MAX_PARTS, PartName
from jan_serve.store.imports.found import FoundFile, FoundModel, projector_name, read_capped, walk_files

_MODELS: Final = ("llamacpp", "models")


def find_jan(data_folder: Path) -> Iterator[FoundModel]:
    """The models in a Jan data folder. Blocks on the disk."""
    folder = data_folder.joinpath(*_MODELS)
    for relative in walk_files(folder):
        if relative.name != "model.yml" or len(relative.parts) < 2:
            continue
        described = _read(folder / relative)
        path = _path(data_folder, described.get("model_path"))
        if path is None:
            continue
        model_id = relative.parent.as_posix()
        projector = _path(data_folder, described.get("mmproj_path"))
        yield FoundModel(
            kind="jan",
            label=model_id,
            files=_files(path, f"jan/{model_id}"),
            projector=FoundFile(projector, projector_name(f"jan/{model_id}")) if projector else None,
            aliases=(model_id,),
        )


def _files(path: Path, name: str) -> tuple[FoundFile, ...]:
    part = PartName.parse(path.name)
    if part is None or part.number != 1 or not 1 <= part.count <= MAX_PARTS:
        return (FoundFile(path, f"{name}.gguf"),)
    names = zip(part.all_files(), part.all_files(stem=name), strict=True)
    return tuple(FoundFile(path.with_name(original), ours) for original, ours in names)


def _read(path: Path) -> dict[str, Any]:
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


def _path(data_folder: Path, value: object) -> Path | None:
    if not isinstance(value, str) or not value or "\0" in value:
        return None
    path = Path(value)
    if path.is_absolute():
        return path
    return None if ".." in path.parts else data_folder / path
