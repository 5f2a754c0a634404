"""Uploads by digest, hidden in the models folder until a model is made of them; SHA-256 of files in threads."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from jan_serve.errors import InsufficientStorage, InvalidRequest, Unavailable
from jan_serve.store.files import (
    TEMPORARY_SUFFIX,
    check_room,
    file_stamp,
    flush_folder,
    storage_error,
    writing_to,
)
from jan_serve.store.gguf.header_checks import check_adapter
from jan_serve.store.gguf.model_file import read_model_file
from jan_serve.store.hub.references import is_safe_file
from jan_serve.store.index import STATE_FOLDER, FileRecord, ModelIndex, ModelRecord, Source

_HASH_STEP_BYTES: Final = 8 << 20

T = TypeVar("T")


async def file_matches(path: Path, size_bytes: int, sha256: str) -> bool:
    """Whether the file exists with this size and digest. Reads the whole file if the size matches."""
    try:
        if path.stat().st_size != size_bytes:
            return False
        with path.open("rb") as file:
            hasher = hashlib.sha256()
            await hash_bytes(file, hasher.update, size_bytes)
    except OSError:
        return False
    return hasher.hexdigest() == sha256


async def hash_bytes(file: BinaryIO, update: Callable[[bytes], None], count: int) -> None:
    """Hash the next `count` bytes of a file in blocks, between which the task can be cancelled."""
    remaining = count

    def step() -> int:
        block = file.read(min(remaining, _HASH_STEP_BYTES))
        update(block)
        return len(block)

    while remaining:
        n_read = await in_thread(step)
        if n_read == 0:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        remaining -= n_read


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread, to completion even if cancelled: it uses a file that the caller then closes."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise


CREATED_FOLDER: Final = "created"
_DIGEST: Final = re.compile(r"sha256[:-]([0-9a-f]{64})\Z")
_KEPT_FOR_S: Final = 86_400
_SURELY_KEPT_S: Final = 600
"""Older uploads that nothing was made of are deleted where there is no room, older unfinished ones at once."""
MAX_UPLOADS: Final = 16
"""Unfinished uploads at once."""
_WRITE_BYTES: Final = 1 << 20


def digest_of(text: str) -> str:
    """The hexadecimal digits of `sha256:HEX`. Raises InvalidRequest."""
    match = _DIGEST.match(text)
    if match is None:
        raise InvalidRequest("digest: must be `sha256:` and 64 hexadecimal digits", param="digest")
    return match[1]


class Blobs:
    """The uploads of one models folder. Methods that are not coroutines block on the disk."""

    def __init__(self, models_dir: Path, index: ModelIndex) -> None:
        self._models_dir = models_dir
        self._index = index
        self._folder = models_dir / STATE_FOLDER / "blobs"
        self._unfinished: dict[Path, int] = {}  # bytes that are announced and not written, by file

    def path_of(self, sha256: str) -> Path | None:
        """The upload with this digest, else a file of a model that was pulled or made here."""
        blob = self._folder / f"sha256-{sha256}"
        if blob.is_file():
            return blob
        for record in self._index.records().values():
            first = record.files[0]
            path = self._models_dir / first.path
            if record.source.kind in ("hub", "created") and first.sha256 == sha256 and len(record.files) == 1:
                stamp = file_stamp(path)
                if stamp is not None and record.describes(stamp[1], stamp[0]):
                    return path
        return None

    async def receive(self, sha256: str, n_bytes: int, chunks: AsyncIterator[bytes]) -> None:
        """Store an upload. n_bytes: its announced size, 0 if unknown. Raises InvalidRequest for another digest;
        InsufficientStorage, StoreError; Unavailable while there are many other uploads; and what `chunks` raises."""
        if len(self._unfinished) >= MAX_UPLOADS:
            raise Unavailable(f"{MAX_UPLOADS} uploads are on their way; send this one later.")
        temporary = self._folder / f"{sha256}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}"
        self._unfinished[temporary] = n_bytes

        def make_room(size: int) -> None:
            self._unfinished[temporary] = max(0, self._unfinished[temporary] - size)
            self._check_room(size + sum(self._unfinished.values()))

        try:
            await in_thread(self._prepare)
            with temporary.open("xb") as file:
                found = await _write(file, chunks, make_room)
            if found != sha256:
                reason = f"digest mismatch: the file has sha256:{found}, not sha256:{sha256}"
                raise InvalidRequest(reason, param="digest")
            os.replace(temporary, self._folder / f"sha256-{sha256}")
            await in_thread(lambda: flush_folder(self._folder))
        except OSError as error:
            raise storage_error(error, self._models_dir) from error
        finally:
            del self._unfinished[temporary]
            temporary.unlink(missing_ok=True)

    def make_model(self, sha256: str, name: str) -> ModelRecord:
        """A model of this name from an upload. Raises InvalidRequest, InvalidModel, StoreError."""
        blob = self.path_of(sha256)
        if blob is None:
            raise InvalidRequest(f"files: sha256:{sha256} was not uploaded to /api/blobs", param="files")
        path = f"{CREATED_FOLDER}/{name.replace(':', '-')}.gguf"
        if not is_safe_file(path):
            raise InvalidRequest("model: the name cannot be that of a file", param="model")
        facts = read_model_file(blob).facts()
        target = self._models_dir / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with self._placed(blob, target):
                status = target.stat()
                record = ModelRecord(
                    name=path.removesuffix(".gguf"),
                    source=Source(kind="created", name=name),
                    files=(FileRecord(path=path, size_bytes=status.st_size, sha256=sha256),),
                    modified_ns=status.st_mtime_ns,
                    added_at=time.time(),
                    facts=facts,
                )
                self._index.put(record)
        except FileExistsError:
            reason = f"model: there is a model {name} already; delete it first"
            raise InvalidRequest(reason, param="model") from None
        except OSError as error:
            raise storage_error(error, self._models_dir) from error
        return record

    def keep_adapter(self, sha256: str, target: Path, name: str, architecture: str) -> None:
        """Keep an upload as the LoRA adapter of a variant of this name. target: where; it may be there already.
        architecture: of the model. Raises InvalidRequest, InvalidModel, StoreError."""
        blob = target if target.is_file() else self.path_of(sha256)
        if blob is None:
            raise InvalidRequest(
                f"adapters: sha256:{sha256} was not uploaded to /api/blobs", param="adapters"
            )
        check_adapter(blob, name, architecture)
        with writing_to(self._models_dir):
            if blob != target:
                target.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileExistsError), self._placed(blob, target):
                    pass

    @contextlib.contextmanager
    def _placed(self, blob: Path, target: Path) -> Generator[None]:
        """Gives a file the name `target`; takes it back if the body fails. Raises FileExistsError, OSError."""
        is_upload = blob.parent == self._folder
        try:
            os.link(blob, target)
        except OSError as error:
            # exFAT and some network shares have no hard links.
            if isinstance(error, FileExistsError) or not is_upload:
                raise
            _move(blob, target)
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                if blob.exists():
                    target.unlink()
                else:
                    os.replace(target, blob)
            raise
        if is_upload:
            # One that cannot be deleted now is deleted after a day.
            with contextlib.suppress(OSError):
                blob.unlink(missing_ok=True)

    def _prepare(self) -> None:
        """Delete what nobody uses, and check the room for what is announced. Raises InsufficientStorage, OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for age_s, path in self._by_age():
            if age_s > (_SURELY_KEPT_S if path.suffix == TEMPORARY_SUFFIX else _KEPT_FOR_S):
                path.unlink(missing_ok=True)
        self._check_room(sum(self._unfinished.values()))

    def _check_room(self, n_bytes: int) -> None:
        """Raises InsufficientStorage, once no old upload is left that could make room."""
        try:
            check_room(self._models_dir, n_bytes)
        except InsufficientStorage:
            old = [path for age_s, path in self._by_age() if age_s > _SURELY_KEPT_S]
            if not old:
                raise
            old[0].unlink(missing_ok=True)
            self._check_room(n_bytes)

    def _by_age(self) -> list[tuple[float, Path]]:
        """Uploads with their ages in seconds, the oldest first; without those that are being written here."""
        paths = (Path(entry.path) for entry in os.scandir(self._folder))
        stamps = ((path, file_stamp(path)) for path in paths if path not in self._unfinished)
        return sorted(((time.time() - stamp[0] / 1e9, path) for path, stamp in stamps if stamp), reverse=True)


def _move(source: Path, target: Path) -> None:
    """Rename a file: as `os.rename`, but raises FileExistsError on every system if the name is taken."""
    # The empty file reserves the name: a rename would replace another file.
    target.touch(exist_ok=False)
    try:
        os.replace(source, target)
    except OSError:
        target.unlink()
        raise


async def _write(file: BinaryIO, chunks: AsyncIterator[bytes], make_room: Callable[[int], None]) -> str:
    """Returns the SHA-256 digest. make_room: called before so many bytes are written; may raise."""
    hasher = hashlib.sha256()
    waiting = bytearray()

    def write() -> None:
        make_room(len(waiting))
        hasher.update(waiting)
        file.write(waiting)
        waiting.clear()

    def flush() -> None:
        file.flush()
        os.fsync(file.fileno())

    async for chunk in chunks:
        waiting += chunk
        if len(waiting) >= _WRITE_BYTES:
            await in_thread(write)
    await in_thread(write)
    await in_thread(flush)
    return hasher.hexdigest()
