"""Images and sounds that are decoded in a helper process."""

from __future__ import annotations

from typing import Final

import msgspec

from jan_serve.audio_files.header import AudioHeader
from jan_serve.errors import InvalidAudio, InvalidImage, InvalidRequest
from jan_serve.helpers.kind import HelperKind
from jan_serve.image_files.header import ImageHeader


class DecodeImage(msgspec.Struct, frozen=True, kw_only=True, tag="image"):
    """data: the file. header: what it must decode to. size: width and height of the pixels that are wanted."""

    data: bytes
    header: ImageHeader
    size: tuple[int, int]


class DecodeAudio(msgspec.Struct, frozen=True, kw_only=True, tag="audio"):
    """data: the file, as its header says. rate: samples a second that are wanted."""

    data: bytes
    header: AudioHeader
    rate: int


DecodeMedia = DecodeImage | DecodeAudio


def _too_much(request: DecodeMedia) -> InvalidRequest:
    reason = "needs more time or memory than one file may use"
    if isinstance(request, DecodeImage):
        return InvalidImage(f"the image {reason}")
    return InvalidAudio(f"the audio {reason}")


DECODING: Final[HelperKind[DecodeMedia, bytes]] = HelperKind(
    command="media",
    name="media decoder",
    request=DecodeMedia,
    result=bytes,
    too_much=_too_much,
    # The largest images take about two seconds on a slow machine, and the longest sounds about three.
    cpu_limit_s=15.0,
    # A transparent image of the largest size takes three copies of 4 bytes a pixel, and each request has half of this.
    memory_limit_bytes=1 << 30,
    wall_limit_s=30.0,
)
"""Results are pixels (RGB8, rows from the top) or samples (float32, mono)."""
