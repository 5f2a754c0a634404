"""Downloads a file from the hub: resumes, hashes while writing, verifies, renames.

A file gets its name only after its size, SHA-256 digest and GGUF header are verified and it is flushed to the disk.
A failure keeps received data for a later attempt, unless it is damaged, is not a model, or the disk is full. It is in a
hidden folder of the models folder, so that the last step is a rename on one file system and listings skip it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import filelock
import httpx2
import msgspec

from jan_serve.errors import DigestMismatch, HubError, InvalidModel
from jan_serve.store.blobs import file_matches, hash_bytes, in_thread
from jan_serve.store.files import TEMPORARY_SUFFIX, flush_folder, is_full, record_file, writing_to
from jan_serve.store.gguf.gguf_header import read_gguf_header
from jan_serve.store.hub.hub_http import HubHttp
from jan_serve.store.hub.retries import TransientFailure
from jan_serve.store.index import STATE_FOLDER

_BLOCK_BYTES: Final = 1 << 20
_FLUSH_BYTES: Final = 64 << 20
_LOCK_POLL_S: Final = 0.2
_LOCK: Final = ".lock"
_KEPT_FOR_S: Final = 14 * 86_400
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\Z")

StatusError = Callable[[int, httpx2.Headers], None]
"""Called with a permanent error status (400 and above); raises the matching error."""


class DownloadWatcher(Protocol):
    """Follows a file, or all files of a pull. Called in the event loop; must not block."""

    def received(self, n_bytes: int) -> None:
        """n_bytes: received so far; less than before if the transfer restarts."""
        ...

    def note(self, text: str) -> None:
        """A sentence for the user who waits, for example that a transfer is retried."""
        ...


class Download(msgspec.Struct, frozen=True):
    """name: the name of the file in messages."""

    url: str
    name: str
    size_bytes: int
    sha256: str
    target: Path


class PartialFolder:
    """The partial downloads of one models folder, by digest. Every method blocks briefly on the disk."""

    def __init__(self, models_dir: Path) -> None:
        self._models_dir = models_dir
        self._folder = models_dir / STATE_FOLDER / "incoming"

    def path(self, sha256: str) -> Path:
        """The file for unverified bytes of this digest."""
        return self._folder / f"{sha256}.part"

    def n_kept(self, sha256: str) -> int:
        """Bytes of this digest that were received."""
        try:
            return self.path(sha256).stat().st_size
        except OSError:
            return 0

    def locks(self, file: Download) -> tuple[filelock.BaseFileLock, ...]:
        """The unacquired locks of the file's digest and of its place. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        place = record_file(file.target.relative_to(self._models_dir).as_posix())
        return tuple(
            filelock.FileLock(self._folder / (name + _LOCK), thread_local=False)
            for name in (file.sha256, place)
        )

    def sweep(self) -> None:
        """Delete files that nobody goes on with. Suppresses OSError."""
        long_ago = time.time() - _KEPT_FOR_S
        temporary = (self._folder.parent / "index").glob(f"*{TEMPORARY_SUFFIX}")
        for path in (*self._folder.glob("*"), *temporary):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < long_ago:
                    # Acquiring a lock leaves its file's age: an old one may be in use.
                    is_lock = path.suffix == _LOCK
                    with filelock.FileLock(path).acquire(timeout=0) if is_lock else contextlib.nullcontext():
                        path.unlink()


async def download(
    http: HubHttp, partials: PartialFolder, file: Download, watcher: DownloadWatcher, on_status: StatusError
) -> None:
    """Download one file unless it exists. Cancelling takes effect within a second and keeps received data. Raises
    DigestMismatch, InvalidModel, InsufficientStorage, StoreError, HubError, HubUnavailable, Offline."""
    with writing_to(file.target.parent):
        async with _alone(partials, file, watcher):
            if await file_matches(file.target, file.size_bytes, file.sha256):
                watcher.received(file.size_bytes)
                return
            while True:
                transfer = _Transfer(http, partials.path(file.sha256), file, watcher, on_status)
                try:
                    await transfer.run()
                    return
                except DigestMismatch:
                    # Only data from an earlier attempt may be damaged on the disk.
                    if not transfer.is_worthless or transfer.n_resumed == 0:
                        raise
                    watcher.note(f"{file.name}: data from an earlier attempt is damaged; beginning again.")


class _Transfer:
    """The transfer of one file, over one or more connections. n_resumed: bytes from an earlier attempt. is_worthless:
    whether the data is known to be damaged or no model."""

    def __init__(
        self, http: HubHttp, partial: Path, file: Download, watcher: DownloadWatcher, on_status: StatusError
    ) -> None:
        self._http = http
        self._partial = partial
        self._download = file
        self._watcher = watcher
        self._on_status = on_status
        self._file: BinaryIO = partial.open("a+b")
        self._hasher = hashlib.sha256()
        self._position = 0
        self._furthest = 0
        self._unflushed = 0
        self.n_resumed = 0
        self.is_worthless = False

    async def run(self) -> None:
        """Receive, verify and rename the file. On failure, keep the data unless it is worthless or the disk is full."""
        try:
            await self._resume()
            await self._http.retrying(self._attempt, lambda: self._furthest)
            await in_thread(self._check)
            self._file.close()
            await in_thread(self._place)
        except BaseException as error:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(OSError):
                is_empty = not self._partial.stat().st_size
                if self.is_worthless or is_empty or (isinstance(error, OSError) and is_full(error)):
                    self._partial.unlink()
            raise

    async def _resume(self) -> None:
        """Hash data from an earlier attempt, or discard it if it is too long."""
        n_kept = self._file.seek(0, os.SEEK_END)
        if not 0 < n_kept <= self._download.size_bytes:
            self._restart()
            return
        self._file.seek(0)
        try:
            await hash_bytes(self._file, self._hasher.update, n_kept)
        except OSError as error:
            # Kept, a bad sector would fail every later attempt.
            self.is_worthless = error.errno == errno.EIO
            raise
        self._position = self._furthest = self.n_resumed = n_kept
        self._watcher.received(self._position)

    def _restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._hasher = hashlib.sha256()
        self._position = self.n_resumed = 0
        self._watcher.received(0)

    async def _attempt(self) -> None:
        wanted = self._download.size_bytes
        if self._position == wanted:
            return
        headers = {"Range": f"bytes={self._position}-"} if self._position else {}
        try:
            async with self._http.stream(self._download.url, headers=headers) as response:
                self._check_headers(response)
                await self._receive(response)
            if self._position < wanted:
                raise TransientFailure(f"it ended after {self._position} of {wanted} bytes")
        except TransientFailure as failure:
            self._watcher.note(f"{self._download.name}: {failure.reason}; trying again.")
            raise

    def _check_headers(self, response: httpx2.Response) -> None:
        """Check that the response is this file from the requested offset. Restarts if the hub sends the whole file."""
        file, headers = self._download, response.headers
        if response.status_code == 416 and self._position:
            self._restart()
            raise TransientFailure("the hub refused to send the rest of the file")
        if response.status_code >= 400:
            self._on_status(response.status_code, headers)
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise HubError(f"{self._http.host} sends {file.name} in an encoding that was not requested.")
        if response.status_code == 206:
            match = _CONTENT_RANGE.match(headers.get("content-range", ""))
            if match is None or int(match[1]) != self._position:
                self._restart()
                raise TransientFailure("the hub sent another part of the file than requested")
            total = match[3]
        elif response.status_code == 200:
            total = headers.get("content-length", "*")
        else:
            raise HubError(f"{self._http.host} answers {file.name} with status {response.status_code}.")
        kind = headers.get("content-type", "")
        if total not in ("*", str(file.size_bytes)) or kind.startswith("text/html"):
            got = f"{total} bytes ({kind[:60] or 'no type'})"
            raise DigestMismatch(file.name, f"{file.size_bytes} bytes", got)
        # Only now: an answer that is not this file, such as a login page, leaves the data.
        if response.status_code == 200 and self._position:
            self._restart()

    async def _receive(self, response: httpx2.Response) -> None:
        block = bytearray()
        try:
            # Unbuffered: httpx drops partial pieces of a given size if the connection breaks.
            async for piece in response.aiter_raw():
                block += piece
                if self._position + len(block) > self._download.size_bytes:
                    block.clear()
                    self.is_worthless = True
                    wanted = f"{self._download.size_bytes} bytes"
                    raise DigestMismatch(self._download.name, wanted, "more than that")
                if len(block) >= _BLOCK_BYTES:
                    ready, block = block, bytearray()
                    await self._write(ready)
        finally:
            if block:
                await self._write(block)

    async def _write(self, block: bytearray) -> None:
        await in_thread(lambda: self._write_now(block))
        self._watcher.received(self._position)

    def _write_now(self, block: bytearray) -> None:
        self._file.write(block)
        self._hasher.update(block)
        self._position += len(block)
        self._furthest = max(self._furthest, self._position)
        self._unflushed += len(block)
        # Regular flushes keep the last one and cancellation short, and make kept data durable.
        if self._unflushed >= _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._unflushed = 0

    def _check(self) -> None:
        """Raises DigestMismatch, InvalidModel."""
        got = self._hasher.hexdigest()
        if got != self._download.sha256:
            self.is_worthless = True
            raise DigestMismatch(self._download.name, f"SHA-256 {self._download.sha256}", f"SHA-256 {got}")
        self._flush()
        # Where file locks do nothing, another process may have written too.
        if os.fstat(self._file.fileno()).st_size != self._position:
            raise OSError(errno.EBUSY, "another program writes the same file")
        try:
            read_gguf_header(self._partial)
        except InvalidModel as error:
            self.is_worthless = True
            message = error.message.replace(self._partial.name, self._download.name)
            raise InvalidModel(message) from None

    def _place(self) -> None:
        target = self._download.target
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(self._partial, target)
        flush_folder(target.parent)


@contextlib.asynccontextmanager
async def _alone(partials: PartialFolder, file: Download, watcher: DownloadWatcher) -> AsyncGenerator[None]:
    """Waits for transfers of this digest or to this place, in any process, and follows the bytes of such a one."""
    locks = partials.locks(file)
    is_noted = False
    while True:
        with contextlib.ExitStack() as held:
            try:
                for lock in locks:
                    held.enter_context(lock.acquire(timeout=0))
            except filelock.Timeout:
                pass
            else:
                yield
                return
        if not is_noted:
            watcher.note(f"{file.name}: another download of it is running; waiting.")
            is_noted = True
        watcher.received(partials.n_kept(file.sha256))
        await asyncio.sleep(_LOCK_POLL_S)
