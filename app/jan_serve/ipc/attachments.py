"""The data of images and sound goes in small frames before its request, so that other frames pass between them.

`media_frames` takes it out of a request; Attachments hold what arrives, and put it back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from jan_serve.core.messages import AudioPiece, ImagePiece, PromptPiece
from jan_serve.errors import Overloaded
from jan_serve.ipc.messages import EngineRequest, MediaData

PART_BYTES: Final = 1 << 20
_MAX_BYTES: Final = 2 << 30


def media_frames(request: EngineRequest) -> Iterator[MediaData | EngineRequest]:
    """The request after the data of its images and sounds, each of which is sent once."""
    by_digest: dict[str, bytes] = {}
    for piece in request.prompt:
        if isinstance(piece, ImagePiece | AudioPiece):
            data = piece.pixels if isinstance(piece, ImagePiece) else piece.samples
            if data:
                by_digest[piece.digest] = data
    for digest, data in by_digest.items():
        for start in range(0, len(data), PART_BYTES):
            yield MediaData(id=request.id, digest=digest, data=data[start : start + PART_BYTES])
    yield with_media(request, dict.fromkeys(by_digest, b""))


def with_media(request: EngineRequest, by_digest: Mapping[str, bytes]) -> EngineRequest:
    """The request with other data."""

    def with_data(piece: PromptPiece) -> PromptPiece:
        match piece:
            case ImagePiece() if piece.digest in by_digest:
                return msgspec.structs.replace(piece, pixels=by_digest[piece.digest])
            case AudioPiece() if piece.digest in by_digest:
                return msgspec.structs.replace(piece, samples=by_digest[piece.digest])
            case _:
                return piece

    if not by_digest:
        return request
    return msgspec.structs.replace(request, prompt=tuple(map(with_data, request.prompt)))


def attachments_bytes() -> int:
    """Bytes of images to hold, by the memory of this machine."""
    import psutil  # slow, and only processes that hold images need it

    return min(_MAX_BYTES, psutil.virtual_memory().total // 8)


class _Entry(msgspec.Struct):
    """size: of all that came, which counts after `parts` are handed over too. refused: it holds nothing."""

    parts: dict[str, list[bytes]] = msgspec.field(default_factory=dict[str, list[bytes]])
    size: int = 0
    refused: bool = False


class Attachments:
    """Data by request. Thread-safe. One whose data does not fit beside that of others is refused; alone, any fits."""

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
