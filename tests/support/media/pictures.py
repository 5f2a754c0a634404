"""Image files for tests, made by Pillow or by hand."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

from PIL import Image

RED = (255, 0, 0)
BLUE = (0, 0, 255)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def picture(
    width: int = 8, height: int = 6, kind: str = "PNG", color: Any = RED, mode: str = "RGB", **options: Any
) -> bytes:
    """One colour."""
    return encoded(Image.new(mode, (width, height), color), kind, **options)


def data_url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_header(width: int, height: int) -> bytes:
    """A PNG without pixels."""
    body = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", body)


def png_bomb(width: int, height: int) -> bytes:
    """All its pixels are black: a small file for any size."""
    pixels = zlib.compressobj(9)
    rows = b"".join(pixels.compress(bytes(3 * width + 1)) for _ in range(height)) + pixels.flush()
    return png_header(width, height) + png_chunk(b"IDAT", rows) + png_chunk(b"IEND", b"")
