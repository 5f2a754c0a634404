"""One file from the hub to its place in the models folder: resumed, hashed while it is written, checked, renamed.

A file appears under its name only when its size, its SHA-256 digest and its GGUF header are right and it is safe on the
disk. A break keeps what was received; a wrong digest or a full disk deletes it. It knows no repositories and no index.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

import filelock
import httpx2

from jan_serve.errors import (
    DigestMismatch,
    HubError,
    HubUnavailable,
    InvalidModel,
)
from jan_serve.store.files.atomic_file import flush_folder
from jan_serve.store.files.disk_space import storage_error
from jan_serve.store.files.file_hash import file_matches, hash_bytes, in_thread
from jan_serve.store.gguf.gguf_header import read_gguf_header
from jan_serve.store.hub.hub_http import HubHttp, TransientFailure
from jan_serve.store.hub.incoming import IncomingFile, IncomingFolder

_BLOCK_BYTES: Final = 1 << 20
_FLUSH_BYTES: Final = 64 << 20
_LOCK_POLL_S: Final = 0.2
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\Z")

StatusError = Callable[[int, httpx2.Headers], None]
"""Called with a status of 400 and above that will not pass, to raise what it means."""


class DownloadWatcher(Protocol):
    """Follows a file, or all files of a pull. Called in the event loop; must not block."""

    def received(self, n_bytes: int) -> None:
        """n_bytes: received so far; less than before if the transfer restarts."""
        ...

    def note(self, text: str) -> None:
        """A sentence for the user who waits, for example that a transfer is retried."""
        ...


@dataclass(frozen=True, slots=True)
class Download:
    """What to get and where to put it. `name` is for messages."""

    url: str
    name: str
    size_bytes: int
    sha256: str
    target: Path


async def download(
    http: HubHttp, incoming: IncomingFolder, what: Download, watcher: DownloadWatcher, on_status: StatusError
) -> None:
    """Bring one file to its place. Cancelling takes effect within a second, and keeps what was received.

    Raises DigestMismatch, InvalidModel, InsufficientStorage, StoreError, HubError, HubUnavailable, Offline.
    """
    try:
        async with _process_lock(incoming, what, watcher):
            if await file_matches(what.target, what.size_bytes, what.sha256):
                watcher.received(what.size_bytes)
                return
            while True:
                transfer = _Transfer(http, incoming.claim(what.sha256), what, watcher, on_status)
                try:
                    await transfer.run()
                    return
                except DigestMismatch:
                    # What an earlier try left may be damaged; what was received just now has no such excuse.
                    if transfer.n_resumed == 0:
                        raise
                    watcher.note(f"{what.name}: what an earlier try had left is damaged; beginning again.")
    except OSError as error:
        raise storage_error(error, what.target.parent) from error


class _Transfer:
    """One writer's work on one file, with as many connections as it takes. `n_resumed`: bytes from an earlier try."""

    def __init__(
        self,
        http: HubHttp,
        incoming: IncomingFile,
        what: Download,
        watcher: DownloadWatcher,
        on_status: StatusError,
    ) -> None:
        self._http = http
        self._incoming = incoming
        self._what = what
        self._watcher = watcher
        self._on_status = on_status
        self._file: BinaryIO = incoming.path.open("r+b")
        self._hasher = hashlib.sha256()
        self._at = 0
        self._furthest = 0
        self._unflushed = 0
        self.n_resumed = 0

    async def run(self) -> None:
        """Receive, check and place the file; or leave the rest for a later try, or nothing."""
        keep = False
        try:
            await self._resume()
            await self._http.retrying(self._attempt, lambda: self._furthest)
            await in_thread(self._check)
            self._file.close()
            await in_thread(self._place)
        except (HubUnavailable, asyncio.CancelledError):
            keep = True
            raise
        finally:
            with contextlib.suppress(OSError):
                self._file.close()
            if keep:
                self._incoming.keep()
            else:
                self._incoming.discard()

    async def _resume(self) -> None:
        """Hash what an earlier try left, or drop it where it cannot be the beginning of this file."""
        if not 0 < self._incoming.n_kept <= self._what.size_bytes:
            self._restart()
            return
        await hash_bytes(self._file, self._hasher.update, self._incoming.n_kept)
        self._at = self._furthest = self.n_resumed = self._incoming.n_kept
        self._watcher.received(self._at)

    def _restart(self) -> None:
        self._file.seek(0)
        self._file.truncate()
        self._hasher = hashlib.sha256()
        self._at = self.n_resumed = 0
        self._watcher.received(0)

    async def _attempt(self) -> None:
        if self._at == self._what.size_bytes:
            return
        headers = {"Range": f"bytes={self._at}-"} if self._at else {}
        try:
            async with self._http.stream(self._what.url, headers=headers) as response:
                self._check_head(response)
                await self._receive(response)
            if self._at < self._what.size_bytes:
                raise TransientFailure(f"it ended after {self._at} of {self._what.size_bytes} bytes")
        except TransientFailure as failure:
            self._watcher.note(f"{self._what.name}: {failure.reason}; trying again.")
            raise

    def _check_head(self, response: httpx2.Response) -> None:
        """See that the answer is this file, from where we want it. Goes back to the start where the hub does."""
        what, headers = self._what, response.headers
        if response.status_code == 416 and self._at:
            self._restart()
            raise TransientFailure("the rest of the file was refused")
        if response.status_code >= 400:
            self._on_status(response.status_code, headers)
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise HubError(f"{self._http.host} sends {what.name} in an encoding that nobody asked for.")
        if response.status_code == 206:
            match = _CONTENT_RANGE.match(headers.get("content-range", ""))
            if match is None or int(match[1]) != self._at:
                self._restart()
                raise TransientFailure("another part of the file came than the one asked for")
            total = match[3]
        elif response.status_code == 200:
            if self._at:
                self._restart()
            total = headers.get("content-length", "*")
        else:
            raise HubError(f"{self._http.host} answers {what.name} with status {response.status_code}.")
        kind = headers.get("content-type", "")
        if total not in ("*", str(what.size_bytes)) or kind.startswith("text/html"):
            raise DigestMismatch(
                what.name, f"{what.size_bytes} bytes", f"{total} bytes ({kind[:60] or 'no type'})"
            )

    async def _receive(self, response: httpx2.Response) -> None:
        block = bytearray()
        try:
            # In pieces as they come: httpx drops what it has gathered for a piece of a given size when a cut comes.
            async for piece in response.aiter_raw():
                block += piece
                if self._at + len(block) > self._what.size_bytes:
                    block.clear()
                    raise DigestMismatch(self._what.name, f"{self._what.size_bytes} bytes", "more than that")
                if len(block) >= _BLOCK_BYTES:
                    ready, block = block, bytearray()
                    await self._write(ready)
        finally:
            if block:
                await self._write(block)

    async def _write(self, block: bytearray) -> None:
        await in_thread(lambda: self._write_now(block))
        self._watcher.received(self._at)

    def _write_now(self, block: bytearray) -> None:
        self._file.write(block)
        self._hasher.update(block)
        self._at += len(block)
        self._furthest = max(self._furthest, self._at)
        self._unflushed += len(block)
        # Flushing as we go keeps the last flush short, so that a cancel is, and the rest of a broken transfer real.
        if self._unflushed >= _FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._unflushed = 0

    def _check(self) -> None:
        """Digest and header. Raises DigestMismatch, InvalidModel."""
        got = self._hasher.hexdigest()
        if got != self._what.sha256:
            raise DigestMismatch(self._what.name, f"SHA-256 {self._what.sha256}", f"SHA-256 {got}")
        self._flush()
        try:
            read_gguf_header(self._incoming.path)
        except InvalidModel as error:
            message = error.message.replace(self._incoming.path.name, self._what.name)
            raise InvalidModel(message) from None

    def _place(self) -> None:
        target = self._what.target
        target.parent.mkdir(parents=True, exist_ok=True)
        self._incoming.place(target)
        flush_folder(target.parent)


@contextlib.asynccontextmanager
async def _process_lock(
    incoming: IncomingFolder, what: Download, watcher: DownloadWatcher
) -> AsyncGenerator[None]:
    """Held while this digest is transferred, so that other processes wait for the file instead of getting it too.

    Where the file system has no locks the transfer runs without: two of them do not disturb each other.
    """
    lock = incoming.lock(what.sha256)
    told = False
    try:
        while True:
            try:
                lock.acquire(timeout=0)
                break
            except filelock.Timeout:
                if not told:
                    watcher.note(f"{what.name}: another process downloads it; waiting for that.")
                    told = True
                await asyncio.sleep(_LOCK_POLL_S)
            except NotImplementedError:
                break
        yield
    finally:
        lock.release()
