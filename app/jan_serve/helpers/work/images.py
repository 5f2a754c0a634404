"""Image files to RGB8 with Pillow: upright, on white, at the wanted size."""

from __future__ import annotations

import io
import warnings
from typing import Final

from PIL import Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.WebPImagePlugin import WebPImageFile

from jan_serve.errors import InvalidImage
from jan_serve.image_files import ImageFormat, ImageHeader

_READERS: Final[dict[ImageFormat, type[ImageFile]]] = {
    "PNG": PngImageFile,
    "JPEG": JpegImageFile,
    "GIF": GifImageFile,
    "BMP": BmpImageFile,
    "WEBP": WebPImageFile,
}
"""Readers by format. Image.open would try those of forty formats; the header has said which one it is."""

_UPRIGHT: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decoded(data: bytes, header: ImageHeader, size: tuple[int, int]) -> bytes:
    """The first picture of the file as RGB8 rows from the top, upright, `size` as width and height. Raises InvalidImage
    for a damaged file or one that is not what the header says; MemoryError."""
    try:
        with warnings.catch_warnings(), _READERS[header.format](io.BytesIO(data)) as image:
            warnings.simplefilter("ignore")  # about metadata, which nothing here reads
            if image.size != (header.width, header.height):
                raise InvalidImage(
                    f"the image is {image.width}x{image.height} pixels large; its header says"
                    f" {header.width}x{header.height}"
                )
            before_turn = (size[1], size[0]) if header.orientation >= 5 else size
            if header.format == "JPEG":
                image.draft("RGB", before_turn)  # decodes fewer pixels, if those are still enough
            return _shown(image, header.orientation, before_turn).tobytes()
    except (InvalidImage, MemoryError):
        raise
    except Exception as error:  # Pillow's plugins raise many kinds for damaged files
        raise InvalidImage(f"the {header.format} image is damaged{_reason(error)}") from error


def _shown(image: Image.Image, orientation: int, size: tuple[int, int]) -> Image.Image:
    """size: before the image is turned upright."""
    rgb = _rgb(image)
    if rgb.size != size:
        rgb = rgb.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)
    turn = _UPRIGHT.get(orientation)
    return rgb if turn is None else rgb.transpose(turn)


def _rgb(image: Image.Image) -> Image.Image:
    """Transparent pixels on white: their hidden colour is often black or random."""
    if image.mode.startswith("I"):  # 16 bits of grey, which a plain conversion would cut off at 255
        return image.convert("I").point(lambda value: value * (1 / 256)).convert("L").convert("RGB")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(white, layer).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _reason(error: Exception) -> str:
    """The reason in Pillow's words; those of Python would say nothing to a client."""
    return f": {error}"[:200] if isinstance(error, OSError | SyntaxError) else ""
