from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from jan_serve.errors import InvalidImage
from jan_serve.image_files import (
    MAX_IMAGES,
    MAX_SHOWN_PIXELS,
    MIN_SHOWN_SIDE,
    ImageHeader,
    checked_header,
    image_bytes,
    is_remote,
    shown_pixels,
    shown_size,
)
from tests.support.media.pictures import picture, png_chunk, png_header

LOSSY: dict[str, Any] = {"lossless": False}
FILES = {
    "png": (picture(7, 13), ImageHeader("PNG", 7, 13)),
    "png, 16 bit": (picture(7, 13, color=1, mode="I;16"), ImageHeader("PNG", 7, 13)),
    "jpeg": (picture(640, 480, "JPEG"), ImageHeader("JPEG", 640, 480)),
    "progressive jpeg": (picture(64, 48, "JPEG", progressive=True), ImageHeader("JPEG", 64, 48)),
    "cmyk jpeg": (picture(9, 8, "JPEG", (0, 0, 0, 0), "CMYK"), ImageHeader("JPEG", 9, 8)),
    "gif": (picture(30, 20, "GIF"), ImageHeader("GIF", 30, 20)),
    "bmp": (picture(31, 17, "BMP"), ImageHeader("BMP", 31, 17)),
    "webp, lossy": (picture(33, 21, "WEBP", **LOSSY), ImageHeader("WEBP", 33, 21)),
    "webp, lossless": (picture(33, 21, "WEBP", lossless=True), ImageHeader("WEBP", 33, 21)),
    "webp, extended": (picture(33, 21, "WEBP", (1, 2, 3, 4), "RGBA", **LOSSY), ImageHeader("WEBP", 33, 21)),
    "bmp of OS/2": (b"BM" + bytes(12) + struct.pack("<IHHHH", 12, 5, 4, 1, 24), ImageHeader("BMP", 5, 4)),
    "bmp from the top": (b"BM" + bytes(12) + struct.pack("<Iii", 40, 5, -4), ImageHeader("BMP", 5, 4)),
}


@pytest.mark.parametrize(("data", "header"), FILES.values(), ids=FILES)
def test_format_and_size_are_read_from_the_header(data: bytes, header: ImageHeader) -> None:
    assert checked_header(data) == header


@pytest.mark.parametrize(
    "exif",
    [b"", b"II*\0", b"II*\0\xff\xff\xff\xff", b"MM\0*" + bytes(8), b"II*\0\x08\0\0\0\xff\xff", b"junk" * 9],
)
def test_a_damaged_exif_block_says_nothing(exif: bytes) -> None:
    assert checked_header(png_header(5, 4) + png_chunk(b"eXIf", exif)).orientation == 1


REFUSED = {
    "empty": (b"", "the image is empty"),
    "text": (b"<html>not an image</html>", "not a PNG, JPEG, GIF, BMP or WebP image"),
    "tiff": (b"II*\0" + bytes(100), "not a PNG"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a PNG"),
    "too many bytes": (picture() + bytes(20 << 20), "bytes; the limit is 20971520"),
    "png bomb": (png_header(20_000, 20_000), "20000x20000 pixels; the limit is 32 million"),
    "strip": (png_header(20_000, 1), "one side may be 200 times the other at most"),
    "no width": (png_header(0, 5), "no pixels"),
    "png without header": (b"\x89PNG\r\n\x1a\n" + png_chunk(b"IDAT", bytes(16)), "no header"),
    "jpeg without frame": (b"\xff\xd8\xff\xda\0\x02" + bytes(50), "no header"),
    "jpeg of fill bytes": (b"\xff\xd8" + b"\xff" * 100_000, "no header"),
    "jpeg of empty segments": (b"\xff\xd8" + b"\xff\xe0\0\x02" * 10_000, "no header"),
    "webp of another kind": (b"RIFF\0\0\0\0WEBPJUNK" + bytes(20), "no header"),
    "webp without key frame": (b"RIFF\0\0\0\0WEBPVP8 " + bytes(20), "no key frame"),
}


@pytest.mark.parametrize(("data", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_served_is_refused_before_it_is_decoded(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidImage, match=reason):
        checked_header(data)


@pytest.mark.parametrize(
    "name", ["png", "jpeg", "gif", "bmp", "webp, lossy", "webp, lossless", "webp, extended"]
)
def test_a_file_cut_off_within_its_header_is_refused(name: str) -> None:
    data, header = FILES[name]
    for length in range(len(data)):
        try:
            assert checked_header(data[:length]) == header
        except InvalidImage:
            assert length < 200


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        ((448, 448), (448, 448)),
        ((2048, 2048), (2048, 2048)),
        ((1, 1), (8, 8)),
        ((1, 200), (8, 1600)),
        ((300, 4), (600, 8)),
        ((8000, 4000), (2896, 1448)),
    ],
)
def test_a_model_sees_images_as_they_are_within_bounds(size: tuple[int, int], shown: tuple[int, int]) -> None:
    assert shown_size(*size) == shown


def test_no_size_within_the_limits_is_shown_beyond_the_bounds() -> None:
    for size in ((80_000, 400), (5656, 5656), (32_000, 1000), (4, 800), (2049, 2048)):
        for width, height in (size, size[::-1]):
            shown = shown_size(width, height)
            assert shown[0] * shown[1] <= MAX_SHOWN_PIXELS
            assert min(shown) >= MIN_SHOWN_SIDE
            assert abs(shown[0] / shown[1] - width / height) < 0.02 * width / height


def test_an_image_more_seldom_changes_what_is_shown_of_the_others() -> None:
    """Each change makes a conversation's images be computed again."""
    shown = [shown_pixels(count) for count in range(1, MAX_IMAGES + 1)]
    assert shown == [MAX_SHOWN_PIXELS] * 16 + [MAX_SHOWN_PIXELS // 2] * 16 + [MAX_SHOWN_PIXELS // 4] * 32
    assert shown_size(2560, 1440, shown_pixels(20)) == (1930, 1086)
    assert shown_size(1280, 800, shown_pixels(64)) == (1280, 800)


BYTES = bytes(range(256))
TEXT = base64.b64encode(BYTES).decode()
TAKEN = {
    "data URL": f"data:image/png;base64,{TEXT}",
    "another label": f"data:image/svg+xml;base64,{TEXT}",
    "no label": f"data:;base64,{TEXT}",
    "unknown bytes": f"data:application/octet-stream;base64,{TEXT}",
    "with a parameter": f"DATA:image/png;name=a.png;BASE64,{TEXT}",
    "bare": TEXT,
    "line ends": "\r\n".join(TEXT[start : start + 76] for start in range(0, len(TEXT), 76)) + "\n",
    "URL alphabet": base64.urlsafe_b64encode(BYTES).decode(),
    "no padding": TEXT.rstrip("="),
}


@pytest.mark.parametrize("url", TAKEN.values(), ids=TAKEN)
def test_bytes_of_data_urls_and_base64(url: str) -> None:
    assert image_bytes(url) == BYTES
    assert not is_remote(url)


REFUSED_URLS = {
    "words": ("not base64!", "not encoded as base64"),
    "beyond ascii": ("AAAé", "not encoded as base64"),
    "half a byte": ("AAAAA", "not encoded as base64"),
    "padding inside": ("AA==AAAA", "not encoded as base64"),
    "file": ("file:///etc/passwd", "nothing of `file:` is read"),
    "another scheme": ("ftp://host/a.png", "nothing of `ftp:` is read"),
    "a text": (f"data:text/html;base64,{TEXT}", "labelled text/html, not as an image"),
    "per cent": ("data:image/png,%89PNG", "must be encoded as base64"),
    "a space before it": (f" data:image/png;base64,{TEXT}", "a space comes before `data:`"),
    "a line end before another": ("\nhttps://host/a.png", "a space comes before `https:`"),
    "no comma": ("data:image/png;base64", "no comma"),
    "too long": ("A" * 40_000_000, "more than 20971520 bytes"),
}


@pytest.mark.parametrize(("url", "reason"), REFUSED_URLS.values(), ids=REFUSED_URLS)
def test_what_is_neither_is_refused(url: str, reason: str) -> None:
    with pytest.raises(InvalidImage, match=reason):
        image_bytes(url)


@pytest.mark.parametrize("url", ["http://host/a.png", "HTTPS://host/a.png"])
def test_a_url_of_another_host_is_remote(url: str) -> None:
    assert is_remote(url)
