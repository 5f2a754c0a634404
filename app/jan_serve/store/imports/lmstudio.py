"""LM Studio's models: `<publisher>/<repository>/<file>.gguf`, as on the hub.

The folder is `downloadsFolder` in its settings, or `models` in LM Studio's home, which `.lmstudio-home-pointer` in the
user's home may move; older versions use `~/.cache/lm-studio`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from jan_serve.store.imports.found import (
    FoundFile,
    FoundModel,
    group_models,
    projector_of,
    read_capped,
    walk_files,
)


class _Settings(msgspec.Struct, frozen=True, rename="camel"):
    downloads_folder: str | None = None


def lmstudio_folders(home: Path) -> tuple[Path, ...]:
    """The models folders of the user; they may not exist. Blocks on the disk."""
    program = home / ".lmstudio"
    named = _path((read_capped(home / ".lmstudio-home-pointer") or b"").decode("utf-8", "replace").strip())
    if named is not None:
        program = named
    downloads: Path | None = None
    settings = read_capped(program / "settings.json")
    if settings is not None:
        try:
            downloads = _path(msgspec.json.decode(settings, type=_Settings).downloads_folder)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            downloads = None
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


def _path(text: str | None) -> Path | None:
    """The path if it is absolute, else None."""
    return Path(text) if text and "\0" not in text and Path(text).is_absolute() else None
