"""Media data goes in parts before its request, and is put back together within a limit."""

from __future__ import annotations

import pytest

from jan_serve.core.messages import AudioPiece, ImagePiece
from jan_serve.errors import Overloaded
from jan_serve.ipc.attachments import PART_BYTES, Attachments, media_frames, with_media
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


def request_of(number: int) -> EngineRequest:
    return EngineRequest(cache_salt="", id=number, prompt=("a", ImagePiece(width=2, height=1, digest="ab")))


def has_room(held: Attachments, size: int) -> bool:
    """Whether another request's data fits beside what is held."""
    held.add(MediaData(id=9, digest="ab", data=b"a" * size))
    try:
        held.complete(request_of(9))
    except Overloaded:
        return False
    held.release(9)
    return True


def test_parts_become_the_data_of_their_request() -> None:
    held = Attachments(100)
    for number, data in ((1, b"abc"), (2, b"xyz"), (1, b"def"), (2, b"uvw")):
        held.add(MediaData(id=number, digest="ab", data=data))
    assert held.complete(request_of(1)).prompt[1].pixels == b"abcdef"  # type: ignore[union-attr]
    assert held.complete(request_of(2)).prompt[1].pixels == b"xyzuvw"  # type: ignore[union-attr]
    assert has_room(held, 88) and not has_room(held, 89), "they count until the requests are over"
    held.release(1)
    assert has_room(held, 94) and not has_room(held, 95)
    held.release(1)
    held.release(2)
    assert has_room(held, 101), "alone, any fits"


def test_a_request_that_does_not_fit_beside_others_is_refused_and_another_one_is_not() -> None:
    held = Attachments(10)
    held.add(MediaData(id=1, digest="ab", data=b"a" * 8))
    for _ in range(3):
        held.add(MediaData(id=2, digest="ab", data=b"b" * 4))
    with pytest.raises(Overloaded, match="no room for the images"):
        held.complete(request_of(2))
    assert has_room(held, 2) and not has_room(held, 3)
    held.release(1)
    held.add(MediaData(id=3, digest="ab", data=b"c" * 20))
    assert len(held.complete(request_of(3)).prompt[1].pixels) == 20  # type: ignore[union-attr]


def test_what_is_aborted_while_it_arrives_holds_nothing() -> None:
    held = Attachments(10)
    held.add(MediaData(id=1, digest="ab", data=b"abc"))
    held.release(1)
    assert has_room(held, 11)
    assert held.complete(request_of(1)) == request_of(1)
