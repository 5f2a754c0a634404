"""The data of images and sound that arrives before its request, and how much of it the worker holds. Thread-safe."""

from __future__ import annotations

import threading

import psutil

from jan_serve.errors import Overloaded
from jan_serve.ipc.codec import with_media
from jan_serve.ipc.messages import EngineRequest, MediaData

_MAX_BYTES = 2 << 30


def attachments_bytes() -> int:
    """Bytes of images to hold, by the memory of this machine."""
    return min(_MAX_BYTES, psutil.virtual_memory().total // 8)


class Attachments:
    """Data by request. A request whose data does not fit beside that of others is refused; alone, any fits."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._arriving: dict[int, dict[str, list[bytes]]] = {}
        self._sizes: dict[int, int] = {}
        self._refused: set[int] = set()

    @property
    def held_bytes(self) -> int:
        with self._lock:
            return sum(self._sizes.values())

    def add(self, part: MediaData) -> None:
        with self._lock:
            if part.id in self._refused:
                return
            size = self._sizes.get(part.id, 0) + len(part.data)
            others = sum(self._sizes.values()) - self._sizes.get(part.id, 0)
            if others and others + size > self._limit:
                self._refused.add(part.id)
                self._arriving.pop(part.id, None)
                self._sizes.pop(part.id, None)
                return
            self._sizes[part.id] = size
            self._arriving.setdefault(part.id, {}).setdefault(part.digest, []).append(part.data)

    def complete(self, request: EngineRequest) -> EngineRequest:
        """The request with its data, which counts until `release`. Raises Overloaded."""
        with self._lock:
            if request.id in self._refused:
                self._refused.discard(request.id)
                raise Overloaded("There is no room for the images of this request: others wait with theirs.")
            arrived = self._arriving.pop(request.id, {})
        return with_media(request, {digest: b"".join(parts) for digest, parts in arrived.items()})

    def release(self, request_id: int) -> None:
        """The request is over. Unknown ids are ignored."""
        with self._lock:
            self._refused.discard(request_id)
            self._arriving.pop(request_id, None)
            self._sizes.pop(request_id, None)
