"""The named variants of models, one small file each beside the index."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from jan_serve.core.models import Variant, without_latest_tag
from jan_serve.store.files.file_errors import raise_if_exhausted
from jan_serve.store.files.record_files import RecordFiles, record_file
from jan_serve.store.index import STATE_FOLDER

_MAX_VARIANTS: Final = 1_000
VARIANTS: Final = RecordFiles(Variant, "a variant of a model", max_bytes=4 << 20, mode=0o600)


class VariantIndex:
    """The variants of one models folder. Thread-safe; every method blocks briefly on the disk."""

    def __init__(self, models_dir: Path) -> None:
        self._folder = models_dir / STATE_FOLDER / "variants"
        self._lock = threading.Lock()
        self._stamp: int | None = None
        self._known: dict[str, Variant] = {}

    def all(self) -> tuple[Variant, ...]:
        """Variants by name. Reads the files again if one was added, replaced or removed. Raises Unavailable."""
        return tuple(sorted(self._by_key().values(), key=lambda variant: variant.name))

    def _by_key(self) -> Mapping[str, Variant]:
        """A mapping that is replaced, never changed."""
        try:
            stamp = self._folder.stat().st_mtime_ns
        except OSError:
            return {}
        with self._lock:
            if stamp != self._stamp:
                read = (VARIANTS.read(path) for path in self._paths() if path.suffix == ".json")
                self._known = {_key(variant.name): variant for variant in read if variant is not None}
                self._stamp = stamp
            return self._known

    def _paths(self) -> list[Path]:
        try:
            return sorted(Path(entry.path) for entry in os.scandir(self._folder))[:_MAX_VARIANTS]
        except OSError as error:
            raise_if_exhausted(error)
            raise

    def get(self, name: str) -> Variant | None:
        """Ignores case, and the tag `latest`."""
        return self.finder()(name)

    def finder(self) -> Callable[[str], Variant | None]:
        """A `get` for many names: the folder is looked at once."""
        known = self._by_key()
        return lambda name: known.get(_key(name))

    def put(self, variant: Variant) -> None:
        """Write a variant, replacing an older one of that name atomically. Raises OSError."""
        VARIANTS.write(self._path(variant.name), variant)
        with self._lock:
            self._stamp = None

    def remove(self, name: str) -> None:
        """Delete a variant, if there is one of this name, and its adapter, if no other one has it. Raises OSError."""
        removed = self.get(name)
        self._path(name).unlink(missing_ok=True)
        with self._lock:
            self._stamp = None
        if removed is not None and removed.adapter not in {None, *(each.adapter for each in self.all())}:
            self.adapter_path(str(removed.adapter)).unlink(missing_ok=True)

    def adapter_path(self, sha256: str) -> Path:
        """Where the LoRA adapter with this digest is kept."""
        return self._folder.parent / "adapters" / f"{sha256}.gguf"

    def _path(self, name: str) -> Path:
        return self._folder / record_file(_key(name))


def is_named(variant: str, name: str) -> bool:
    """Whether a name means a variant: case does not count, nor the tag `latest`."""
    return _key(variant) == _key(name)


def _key(name: str) -> str:
    return without_latest_tag(name).casefold()
