"""Images and sounds of a request as far as their headers say: within the limits, and counted without being decoded."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from jan_serve.audio_files import header as audio_header
from jan_serve.audio_files.header import AudioHeader
from jan_serve.audio_files.limits import MAX_FILE_BYTES as MAX_AUDIO_BYTES
from jan_serve.core.media import AudioPiece, ImagePiece
from jan_serve.core.messages import AudioPart
from jan_serve.errors import InvalidAudio, InvalidImage, InvalidRequest
from jan_serve.image_files import header as image_header
from jan_serve.image_files.data_url import image_bytes
from jan_serve.image_files.header import ImageHeader
from jan_serve.image_files.limits import MAX_IMAGES, MAX_SHOWN_PIXELS, shown_size
from jan_serve.text.base64_text import base64_bytes


class ReadImage(NamedTuple):
    """piece: without pixels. param: the request's field."""

    param: str
    data: bytes
    header: ImageHeader
    piece: ImagePiece


class ReadAudio(NamedTuple):
    """piece: without samples, and as many frames as its header says. rate: of the model. param: the request's field."""

    param: str
    data: bytes
    header: AudioHeader
    rate: int
    piece: AudioPiece


ReadMedia = ReadImage | ReadAudio


def too_many_images(param: str, count: int) -> InvalidImage:
    return InvalidImage(f"{param}: the request has {count} images; the limit is {MAX_IMAGES}", param=param)


def read_image(param: str, source: str | bytes, most_pixels: int = MAX_SHOWN_PIXELS) -> ReadImage:
    """source: a data URL, base64, or the file. Blocks for the hash, some 20 ms for the largest. Raises InvalidImage."""
    data = image_bytes(source) if isinstance(source, str) else source
    header = image_header.checked_header(data)
    width, height = shown_size(*header.upright_size, most_pixels)
    return ReadImage(
        param, data, header, ImagePiece(width=width, height=height, digest=hashlib.sha256(data).hexdigest())
    )


def read_audio(part: AudioPart, rate: int) -> ReadAudio:
    """rate: samples a second that the model hears. Blocks as `read_image` does. Raises InvalidAudio."""
    data = _audio_bytes(part.base64) if part.base64 else part.file
    header = audio_header.checked_header(data)
    # Another rate makes other samples of the same file.
    digest = hashlib.sha256(data + rate.to_bytes(4)).hexdigest()
    return ReadAudio(part.param, data, header, rate, AudioPiece(digest=digest, frames=header.frames_at(rate)))


def of_field(error: InvalidRequest, param: str) -> InvalidRequest:
    """The same error, with the field that is at fault."""
    return type(error)(f"{param}: {error.message}", param=param)


def _audio_bytes(text: str) -> bytes:
    if text[:5].lower() == "data:":
        text = text.partition(",")[2]
    try:
        return base64_bytes(text, MAX_AUDIO_BYTES)
    except ValueError as error:
        raise InvalidAudio(f"the audio {error}") from None
