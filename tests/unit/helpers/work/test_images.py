from __future__ import annotations

import zlib
from typing import Any

import pytest
from PIL import Image

from jan_serve.errors import InvalidImage
from jan_serve.helpers.work.images import decoded
from jan_serve.image_files import ImageHeader, checked_header
from tests.support.media.pictures import BLUE, RED, encoded, picture, png_bomb, png_chunk

SIZE = (8, 6)


def pixels(data: bytes, size: tuple[int, int] | None = None) -> Image.Image:
    header = checked_header(data)
    size = size or header.upright_size
    return Image.frombytes("RGB", size, decoded(data, header, size))


def near(color: Any, other: tuple[int, int, int]) -> bool:
    return all(abs(a - b) <= 12 for a, b in zip(color, other, strict=True))


def quarters() -> Image.Image:
    """Red at the top left, blue at the bottom right, white elsewhere."""
    image = Image.new("RGB", (64, 48), "white")
    image.paste(RED, (0, 0, 32, 24))
    image.paste(BLUE, (32, 24, 64, 48))
    return image


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_each_format_becomes_rgb(kind: str) -> None:
    image = pixels(encoded(quarters(), kind))
    assert near(image.getpixel((8, 8)), RED)
    assert near(image.getpixel((60, 40)), BLUE)
    assert near(image.getpixel((60, 8)), (255, 255, 255))


MODES = {
    "grey": (picture(*SIZE, color=128, mode="L"), (128, 128, 128)),
    "one bit": (picture(*SIZE, color=1, mode="1"), (255, 255, 255)),
    "16 bit of grey": (picture(*SIZE, color=0x8000, mode="I;16"), (128, 128, 128)),
    "palette": (encoded(Image.new("RGB", SIZE, BLUE).quantize(4)), BLUE),
    "cmyk": (picture(*SIZE, kind="JPEG", color=(0, 255, 255, 0), mode="CMYK"), RED),
    "transparent": (picture(*SIZE, color=(255, 0, 0, 0), mode="RGBA"), (255, 255, 255)),
    "half transparent": (picture(*SIZE, color=(255, 0, 0, 128), mode="RGBA"), (255, 127, 127)),
    "grey with alpha": (picture(*SIZE, color=(0, 0), mode="LA"), (255, 255, 255)),
    "transparent palette": (picture(*SIZE, kind="GIF", color=3, mode="P", transparency=3), (255, 255, 255)),
    "transparent webp": (picture(*SIZE, kind="WEBP", color=(0, 0, 255, 0), mode="RGBA"), (255, 255, 255)),
    "animated": (
        encoded(
            Image.new("RGB", SIZE, RED), "GIF", save_all=True, append_images=[Image.new("RGB", SIZE, BLUE)]
        ),
        RED,
    ),
}


@pytest.mark.parametrize(("data", "color"), MODES.values(), ids=MODES)
def test_other_pixels_become_rgb_on_white(data: bytes, color: tuple[int, int, int]) -> None:
    assert near(pixels(data).getpixel((3, 3)), color)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_turned_upright(kind: str, orientation: int) -> None:
    """Pillow's own transposition is the reference."""
    turns = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
    turn = turns.get(orientation)
    want = quarters() if turn is None else quarters().transpose(Image.Transpose(turn))
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = pixels(encoded(quarters(), kind, exif=exif))
    assert image.size == want.size
    for x, y in ((8, 8), (40, 8), (8, 40), (40, 40)):
        assert near(image.getpixel((x, y)), want.getpixel((x, y)))  # pyright: ignore[reportArgumentType]: RGB


@pytest.mark.parametrize("size", [(32, 24), (13, 9), (128, 96)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_the_size_is_as_wanted(kind: str, size: tuple[int, int]) -> None:
    image = pixels(encoded(quarters(), kind), size)
    assert image.size == size
    assert near(image.getpixel((size[0] // 8, size[1] // 8)), RED)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "WEBP"])
def test_a_file_that_is_cut_off_is_refused(kind: str) -> None:
    data = encoded(Image.effect_noise((64, 48), 50).convert("RGB"), kind)
    header = checked_header(data)
    for length in range(0, len(data) - len(data) // 4, max(1, len(data) // 60)):
        with pytest.raises(InvalidImage):
            decoded(data[:length], header, (64, 48))


def test_a_file_that_is_not_what_its_header_says_is_refused() -> None:
    with pytest.raises(InvalidImage, match="8x6 pixels large; its header says 9x6"):
        decoded(picture(8, 6), ImageHeader("PNG", 9, 6), (9, 6))
    with pytest.raises(InvalidImage, match="the JPEG image is damaged"):
        decoded(picture(8, 6), ImageHeader("JPEG", 8, 6), (8, 6))


def test_a_compressed_text_beside_the_pixels_is_not_unpacked() -> None:
    """Pillow's own limit: a chunk of text may not become more than a megabyte."""
    data = png_bomb(64, 64)
    bomb = png_chunk(b"zTXt", b"x\0\0" + zlib.compress(bytes(50_000_000), 9))
    with pytest.raises(InvalidImage, match="damaged"):
        pixels(data[:33] + bomb + data[33:])
