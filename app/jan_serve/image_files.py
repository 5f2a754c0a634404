"""Images as far as their bytes say it without being decoded: format, size, orientation, limits, data URLs. Pure.

Sources: PNG (W3C), JPEG (ITU T.81), GIF89a, Microsoft's BITMAPINFOHEADER, WebP (RFC 9649), Exif 2.3.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from math import sqrt
from typing import Final, Literal, NamedTuple

from jan_serve.errors import InvalidImage
from jan_serve.text.valid_text import base64_bytes

MAX_FILE_BYTES: Final = 20 << 20  # size of one image as it was sent. OpenAI's limit is the same.

MAX_PIXELS: Final = 32_000_000
"""Pixels of one image. Photographs of phones have 12 to 24 million; decoding takes 4 bytes a pixel, several times."""

MAX_RATIO: Final = 200
"""Ratio of the longer to the shorter side. libmtmd ends the worker where it cannot cut such strips into patches."""

MAX_IMAGES: Final = 64  # images in one request: an agent sends all screenshots of its session each time

MAX_FILES_BYTES: Final = 16 * MAX_FILE_BYTES
"""Size of all images of a request. Those fetched from other hosts are not in its body, which has a limit too."""

MAX_SHOWN_PIXELS: Final = 1 << 22
"""Larger images are reduced to this before they go to the worker; no known projector takes in as much."""

MAX_SHOWN_TOGETHER: Final = 16 * MAX_SHOWN_PIXELS  # pixels of all images of one request: 192 MiB of pixels

MIN_SHOWN_SIDE: Final = 8
"""Smaller images are enlarged to this: projectors assume sides of some pixels, and assert it."""


def shown_pixels(images: int) -> int:
    """Pixels of one image among so many of a request. They are halved rather than shared out: as a conversation grows,
    most images add none of another size to its cache."""
    pixels = MAX_SHOWN_PIXELS
    while images * pixels > MAX_SHOWN_TOGETHER:
        pixels //= 2
    return pixels


def shown_size(width: int, height: int, most_pixels: int = MAX_SHOWN_PIXELS) -> tuple[int, int]:
    """Width and height at which the model sees an image within the limits; the same ratio as far as pixels allow."""
    scale = min(1.0, sqrt(most_pixels / (width * height)))
    scale = max(scale, MIN_SHOWN_SIDE / min(width, height))
    return max(MIN_SHOWN_SIDE, int(width * scale)), max(MIN_SHOWN_SIDE, int(height * scale))


ImageFormat = Literal["PNG", "JPEG", "GIF", "BMP", "WEBP"]

_MAX_PARTS: Final = 256  # chunks or segments that are looked at. Headers come first, among a few others.

_ORIENTATION_TAG: Final = 0x0112
_FRAME_HEADERS: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_START_OF_SCAN: Final = 0xDA


class ImageHeader(NamedTuple):
    """width, height: as stored. orientation: Exif's, 1 (upright) to 8; 5 and above swap the sides."""

    format: ImageFormat
    width: int
    height: int
    orientation: int = 1

    @property
    def upright_size(self) -> tuple[int, int]:
        return (self.height, self.width) if self.orientation >= 5 else (self.width, self.height)


def checked_header(data: bytes) -> ImageHeader:
    """The header of an image within the limits. Raises InvalidImage."""
    if not data:
        raise InvalidImage("the image is empty")
    if len(data) > MAX_FILE_BYTES:
        raise InvalidImage(f"the image has {len(data)} bytes; the limit is {MAX_FILE_BYTES}")
    try:
        header = read_header(data)
    except (struct.error, IndexError):
        raise InvalidImage("the image ends within its header") from None
    width, height = header.width, header.height
    if width < 1 or height < 1:
        raise InvalidImage(f"the image has no pixels ({width}x{height})")
    if width * height > MAX_PIXELS:
        raise InvalidImage(
            f"the image has {width}x{height} pixels; the limit is {MAX_PIXELS // 1_000_000} million"
        )
    if max(width, height) > MAX_RATIO * min(width, height):
        raise InvalidImage(
            f"the image has {width}x{height} pixels; one side may be {MAX_RATIO} times the other at most"
        )
    return header


def read_header(data: bytes) -> ImageHeader:
    """Raises InvalidImage for other formats; struct.error or IndexError where the header is cut off."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return _png(data)
    if data.startswith(b"\xff\xd8\xff"):
        return _jpeg(data)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return ImageHeader("GIF", *struct.unpack_from("<HH", data, 6))
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _webp(data)
    if data.startswith(b"BM"):
        return _bmp(data)
    raise InvalidImage("not a PNG, JPEG, GIF, BMP or WebP image")


def _png(data: bytes) -> ImageHeader:
    if data[12:16] != b"IHDR":
        raise InvalidImage("the PNG image has no header")
    width, height = struct.unpack_from(">II", data, 16)
    orientation = 1
    for kind, start, length in _chunks(data, 8, ">I4s", trailer=4):
        if kind == b"eXIf":
            orientation = _orientation(data[start : start + length])
    return ImageHeader("PNG", width, height, orientation)


def _webp(data: bytes) -> ImageHeader:
    kind = data[12:16]
    orientation = 1
    if kind == b"VP8 ":
        if data[23:26] != b"\x9d\x01\x2a":
            raise InvalidImage("the WebP image has no key frame")
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    elif kind == b"VP8L":
        bits: int = struct.unpack_from("<I", data, 21)[0]
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif kind == b"VP8X":
        width = int.from_bytes(_exactly(data, 24, 3), "little") + 1
        height = int.from_bytes(_exactly(data, 27, 3), "little") + 1
        for name, start, length in _chunks(data, 12, "<4sI"):
            if name == b"EXIF":
                orientation = _orientation(data[start : start + length].removeprefix(b"Exif\0\0"))
    else:
        raise InvalidImage("the WebP image has no header")
    return ImageHeader("WEBP", width, height, orientation)


def _chunks(data: bytes, position: int, layout: str, trailer: int = 0) -> Iterator[tuple[bytes, int, int]]:
    """Kind, start and length of the chunks from `position`. trailer: bytes after each; RIFF pads to even ones."""
    for _ in range(_MAX_PARTS):
        if position + 8 > len(data):
            return
        first, second = struct.unpack_from(layout, data, position)
        kind, length = (first, second) if isinstance(first, bytes) else (second, first)
        yield kind, position + 8, length
        position += 8 + length + (trailer or length & 1)


def _exactly(data: bytes, start: int, length: int) -> bytes:
    part = data[start : start + length]
    if len(part) < length:
        raise IndexError(start)
    return part


def _bmp(data: bytes) -> ImageHeader:
    if struct.unpack_from("<I", data, 14)[0] == 12:
        return ImageHeader("BMP", *struct.unpack_from("<HH", data, 18))
    width, height = struct.unpack_from("<ii", data, 18)
    return ImageHeader("BMP", width, abs(height))  # negative: rows from the top


def _jpeg(data: bytes) -> ImageHeader:
    position, orientation = 2, 1
    for _ in range(_MAX_PARTS):
        if data[position] != 0xFF:
            break
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        length: int = struct.unpack_from(">H", data, position + 2)[0]
        if marker in _FRAME_HEADERS:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return ImageHeader("JPEG", width, height, orientation)
        if marker == _START_OF_SCAN:
            break
        segment = data[position + 4 : position + 2 + length]
        if marker == 0xE1 and segment.startswith(b"Exif\0\0"):
            orientation = _orientation(segment[6:])
        position += 2 + length
    raise InvalidImage("the JPEG image has no header")


def _orientation(exif: bytes) -> int:
    """Orientation in the first directory of an Exif block; 1 where there is none that makes sense."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", exif, 4)
        (count,) = struct.unpack_from(order + "H", exif, start)
        for entry in range(min(count, _MAX_PARTS)):
            tag, kind, _, value = struct.unpack_from(order + "HHIH", exif, start + 2 + 12 * entry)
            if tag == _ORIENTATION_TAG and kind == 3:
                return value if 1 <= value <= 8 else 1
    except struct.error:
        pass  # a damaged block says nothing, and the image is still one
    return 1


_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_MEDIA_TYPES: Final = ("image/", "application/octet-stream", "binary/octet-stream")


def is_remote(url: str) -> bool:
    """Whether the image is elsewhere."""
    return url[:8].lower().startswith(("http://", "https://"))


def image_bytes(url: str) -> bytes:
    """The bytes in a data URL or base64. Raises InvalidImage; the label's exact type is not checked."""
    scheme = _SCHEME.match(url[:64])
    if scheme is None:
        behind = _SCHEME.match(url[:64].lstrip())
        if behind is not None:
            raise InvalidImage(f"a space comes before `{behind[1]}:`")
        return _decoded(url)
    if scheme[1].lower() != "data":
        raise InvalidImage(f"an image is a data URL or an https URL; nothing of `{scheme[1]}:` is read")
    label, comma, text = url[5:].partition(",")
    if not comma:
        raise InvalidImage("the data URL has no comma before its data")
    media_type, *parameters = (part.strip().lower() for part in label.split(";"))
    if media_type and not media_type.startswith(_MEDIA_TYPES):
        raise InvalidImage(f"the data URL is labelled {media_type[:50]}, not as an image")
    if "base64" not in parameters:
        raise InvalidImage("the data URL must be encoded as base64")
    return _decoded(text)


def _decoded(text: str) -> bytes:
    try:
        return base64_bytes(text, MAX_FILE_BYTES)
    except ValueError as error:
        raise InvalidImage(f"the image {error}") from None
