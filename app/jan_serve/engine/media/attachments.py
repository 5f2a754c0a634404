"""The data of images and sound that arrives before its request, and how much of it the worker holds. Thread-safe."""

from __future__ import annotations

import threading

import msgspec
import psutil

from jan_serve.errors import Overloaded
from jan_serve.ipc.codec import with_media
from jan_serve.ipc.messages import EngineRequest, MediaData

_MAX_BYTES = 2 << 30


def attachments_bytes() -> int:
    """Bytes of images to hold, by the memory of this machine."""
    return min(_MAX_BYTES, psutil.virtual_memory().total // 8)


class _Entry(msgspec.Struct):
    """size: of all that came, which counts after `parts` are handed over too. refused: it holds nothing."""

    parts: dict[str, list[bytes]] = msgspec.field(default_factory=dict[str, list[bytes]])
    size: int = 0
    refused: bool = False


class Attachments:
    """Data by request. A request whose data does not fit beside that of others is refused; alone, any fits."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._entries: dict[int, _Entry] = {}

    def add(self, part: MediaData) -> None:
        with self._lock:
            entry = self._entries.setdefault(part.id, _Entry())
            if entry.refused:
                return
            held = sum(each.size for each in self._entries.values())
            if held > entry.size and held + len(part.data) > self._limit:
                self._entries[part.id] = _Entry(refused=True)
                return
            entry.size += len(part.data)
            entry.parts.setdefault(part.digest, []).append(part.data)

    def complete(self, request: EngineRequest) -> EngineRequest:
        """The request with its data, which counts until `release`. Raises Overloaded."""
        with self._lock:
            entry = self._entries.get(request.id, _Entry())
            if entry.refused:
                del self._entries[request.id]
                raise Overloaded("There is no room for the images of this request: others wait with theirs.")
            arrived, entry.parts = entry.parts, {}
        return with_media(request, {digest: b"".join(parts) for digest, parts in arrived.items()})

    def release(self, request_id: int) -> None:
        """The request is over. Unknown ids are ignored."""
        with self._lock:
            self._entries.pop(request_id, None)
