"""Requests with images in frames of limited size."""

from __future__ import annotations

import pytest

from jan_serve.core.media import AudioPiece, ImagePiece
from jan_serve.ipc.media_frames import PART_BYTES, media_frames, with_media
from jan_serve.ipc.messages import EngineRequest, MediaData


def image(size: int, digest: str) -> ImagePiece:
    return ImagePiece(width=1, height=1, digest=digest, pixels=bytes(range(251)) * (size // 251 + 1))


def test_a_request_without_media_is_one_frame() -> None:
    request = EngineRequest(
        cache_salt="", id=1, prompt=("a", (1, 2), ImagePiece(width=4, height=4, digest="ab"))
    )
    assert list(media_frames(request)) == [request]


@pytest.mark.parametrize("size", [1, PART_BYTES - 1, PART_BYTES, 3 * PART_BYTES + 5])
def test_data_comes_in_parts_before_its_request_and_once(size: int) -> None:
    one, sound = image(size, "ab"), AudioPiece(digest="cd", samples=b"\0\1\2\3")
    request = EngineRequest(cache_salt="", id=7, prompt=("a", one, "b", sound, one))
    *parts, last = media_frames(request)
    assert isinstance(last, EngineRequest)
    assert not any(getattr(piece, "pixels", b"") or getattr(piece, "samples", b"") for piece in last.prompt)
    found: dict[str, bytes] = {}
    for part in parts:
        assert isinstance(part, MediaData) and part.id == 7 and len(part.data) <= PART_BYTES
        found[part.digest] = found.get(part.digest, b"") + part.data
    assert list(found) == ["ab", "cd"] and len(found["ab"]) == len(one.pixels)
    assert with_media(last, found) == request
