"""Files: their places, errors at them, small ones written atomically, and records (JSON files of one value)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec
import platformdirs

from jan_serve.errors import InsufficientStorage, StoreError, shortage

_APP = "jan-serve"


def default_config_file() -> Path:
    return platformdirs.user_config_path(_APP, appauthor=False) / "config.toml"


def default_data_dir() -> Path:
    """The folder for state that survives restarts."""
    return platformdirs.user_data_path(_APP, appauthor=False)


def user_path(text: str | Path) -> Path:
    """Expand `~` as Path.expanduser does, but the home of an unknown user stays as it is written. Does not raise."""
    return Path(os.path.expanduser(text))


def in_unknown_home(path: Path) -> bool:
    """Whether `user_path` found no home for the user that the path names."""
    return path.parts[:1] != () and path.parts[0].startswith("~")


def cache_dir(data_dir: Path) -> Path:
    """The folder of saved prompt states and tokens of vocabularies, which can be deleted at any time."""
    return data_dir / "cache"


_MAX_RESERVE: Final = 256 << 20
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def storage_error(error: OSError, folder: Path) -> StoreError:
    """The StoreError for a failure to write below `folder`. Raises Unavailable as `raise_if_exhausted`."""
    raise_if_exhausted(error)
    if is_full(error):
        return InsufficientStorage(f"The disk is full: no more can be written to {folder}.")
    return StoreError(f"Cannot write to {folder}: {error.strerror or error}.")


@contextlib.contextmanager
def writing_to(folder: Path) -> Generator[None]:
    """Raises `storage_error` for an OSError of the block."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, folder) from error


def is_full(error: OSError) -> bool:
    """Whether the disk or the user's share of it is full, or the file is longer than the file system allows."""
    return error.errno in _NO_ROOM


def check_room(folder: Path, n_bytes: int) -> None:
    """Raises InsufficientStorage if `n_bytes` more would fill the disk of `folder`, which may not exist yet."""
    existing = next((path for path in (folder, *folder.parents) if path.exists()), None)
    if existing is None:
        return
    usage = shutil.disk_usage(existing)
    reserve = min(_MAX_RESERVE, usage.total // 50)
    if n_bytes + reserve > usage.free:
        raise InsufficientStorage(
            f"This needs {n_bytes / 1e9:.2f} GB (and {reserve / 1e9:.2f} GB to spare), but only"
            f" {usage.free / 1e9:.2f} GB are free on the disk of {folder}."
        )


def raise_if_exhausted(error: OSError) -> None:
    """Raises Unavailable if this process has no file descriptor or memory left: what is missing then may be there."""
    if (lacking := shortage(error)) is not None:
        raise lacking from error


TEMPORARY_SUFFIX: Final = ".tmp"
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


class TooLarge(ValueError):
    """The text is the end of a sentence about the file."""


def read_limited(path: Path, max_bytes: int) -> bytes:
    """The content of a file, which may be a device without an end. Raises OSError, TooLarge."""
    with path.open("rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise TooLarge(f"is larger than {max_bytes} bytes")
    return content


def write_atomically(path: Path, content: bytes, *, mode: int | None = None) -> None:
    """Replace `path` by a file with `content`. Creates missing folders. Blocks for two flushes to the disk.

    mode: the file's permissions, set before it becomes visible; None is the default. On Windows the folder determines
    them. Replaces a link, not its target. Raises OSError: `path` is then unchanged, or has the new content if only the
    flush of the folder failed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        with open(os.open(temporary, _NEW, 0o666 if mode is None else 0o600), "wb") as file:
            file.write(content)
            file.flush()
            if mode is not None and sys.platform != "win32":
                os.fchmod(file.fileno(), stat.S_IMODE(mode))
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def private_folder(path: Path) -> None:
    """Create a folder, with those above it, that this user alone may enter; one that is there stays. Raises OSError."""
    for folder in (*reversed(path.parents), path):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
    path.mkdir(exist_ok=True)  # raises if a file is in the way


def private_opener(path: str, flags: int) -> int:
    """An opener: a new file is this user's alone from the first byte; one that is there keeps its permissions."""
    return os.open(path, flags, 0o600)


def flush_folder(folder: Path) -> None:
    """Make renames in a folder durable. Does nothing on Windows, which needs no such call."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_stamp(path: Path) -> tuple[int, int] | None:
    """Modification time (ns) and size (bytes); None if the file cannot be read."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


FORMAT: Final = 1
"""The only format of files yet. New fields with defaults need no other."""


class LaterFormat(Exception):
    """A later jan-serve wrote the content."""

    def __init__(self, found: int) -> None:
        super().__init__(f"version {found}; this jan-serve knows versions up to {FORMAT}")
        self.found = found


def check_format(content: Mapping[str, Any], key: str) -> None:
    """key: of the format; missing means the first. Raises LaterFormat, and ValueError for an invalid one."""
    found = content.get(key, FORMAT)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise ValueError(f"{key} must be a whole number from 1 on")
    if found > FORMAT:
        raise LaterFormat(found)


T = TypeVar("T", bound=msgspec.Struct)

_log: Final = logging.getLogger("jan_serve.store")


def record_file(name: str) -> str:
    """The file name of a record: a digest, because names contain `/` and may be too long."""
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32] + ".json"


@dataclass(frozen=True)
class RecordFiles(Generic[T]):
    """Records of one type in a folder, a bounded JSON file for each, written atomically. Blocks briefly on the disk.

    A file that is damaged costs its own record alone, and stays. So does one that a later version wrote. what: for the
    log. key: the field of the format. mode: see `write_atomically`. file_of: the file of a name.
    """

    record: type[T]
    what: str
    folder: Path
    max_bytes: int = 1 << 16
    key: str = "version"
    mode: int | None = None
    file_of: Callable[[str], str] = record_file

    def path(self, name: str) -> Path:
        return self.folder / self.file_of(name)

    def get(self, name: str) -> T | None:
        return self.read(self.path(name))

    def put(self, name: str, record: T) -> None:
        """Replace the file atomically. Raises OSError."""
        content = msgspec.json.format(msgspec.json.encode(record), indent=1)
        write_atomically(self.path(name), content, mode=self.mode)

    def remove(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    def read(self, path: str | Path) -> T | None:
        """None if the file is missing, damaged (which is logged) or of a later version. Raises Unavailable."""
        try:
            return self._checked(path)
        except (FileNotFoundError, LaterFormat):
            return None
        except (OSError, ValueError, RecursionError) as error:
            if isinstance(error, OSError):
                raise_if_exhausted(error)
            extra = {"file": os.path.basename(path), "reason": str(error)}
            _log.warning("%s cannot be read", self.what, extra=extra)
            return None

    def is_later(self, name: str) -> bool:
        """Whether a later version wrote the file: it says more than this one can."""
        try:
            self._checked(self.path(name))
        except LaterFormat:
            return True
        except (OSError, ValueError, RecursionError):
            pass
        return False

    def _checked(self, path: str | Path) -> T:
        with open(path, "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > self.max_bytes:
                raise ValueError("it is too large")
            content = file.read()
        try:
            record = msgspec.json.decode(content, type=self.record)
        except msgspec.ValidationError:
            # A later version may have other fields.
            check_format(msgspec.json.decode(content, type=dict[str, Any]), self.key)
            raise
        check_format({self.key: getattr(record, self.key)}, self.key)
        return record
