"""The decoder's processes: what images cost them, and that nothing an image does costs the caller more."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import pytest
from PIL import Image

from jan_serve.audio_files import checked_header as checked_audio
from jan_serve.errors import InvalidAudio, InvalidDocument, InvalidImage
from jan_serve.helpers.kinds import DECODING, DecodeAudio, DecodeImage, DecodeMedia, DecodePdf
from jan_serve.helpers.pool import HelperPool
from jan_serve.image_files import ImageHeader, checked_header, shown_size
from tests.integration.helpers.helper_pools import helper_pool
from tests.support.drawn_grid import some
from tests.support.media import pdfs
from tests.support.media.pictures import RED, encoded, picture, png_chunk, png_header
from tests.support.media.sounds import wav
from tests.support.processes import children

pytestmark = pytest.mark.anyio


def request(data: bytes) -> DecodeImage:
    header = checked_header(data)
    return DecodeImage(data=data, header=header, size=shown_size(*header.upright_size))


def decoders(
    command: Sequence[str] | None = None, **limits: float
) -> AbstractAsyncContextManager[HelperPool[DecodeMedia, bytes]]:
    return helper_pool(DECODING, command, **limits)


async def test_it_decodes_one_after_the_other_in_one_process() -> None:
    async with decoders() as pool:
        await pool.start()
        assert len(children()) == 1
        for side in range(8, 20):
            assert await pool.ask(request(picture(side, 9))) == bytes(RED) * side * 9
        assert len(children()) == 1
        await pool.rest()
        assert children() == []


async def test_a_damaged_image_is_the_clients_fault_and_the_next_one_is_decoded() -> None:
    noise = encoded(Image.effect_noise((64, 64), 50))
    async with decoders() as pool:
        with pytest.raises(InvalidImage, match="damaged"):
            await pool.ask(request(noise[:300]))
        assert await pool.ask(request(picture(8, 8))) == bytes(RED) * 64


async def test_pdfs_are_read_and_one_that_takes_too_long_is_refused() -> None:
    async with decoders() as pool:
        assert await pool.ask(DecodePdf(data=pdfs.pdf("words"))) == b"[page 1]\nwords"
        with pytest.raises(InvalidDocument, match="unpacks to more than one file may use"):
            await pool.ask(DecodePdf(data=pdfs.bomb()))
        with pytest.raises(InvalidDocument, match=r"more time or memory|unpacks to more"):
            await pool.ask(DecodePdf(data=pdfs.slow()))
        assert await pool.ask(DecodePdf(data=pdfs.pdf("words"))) == b"[page 1]\nwords"


# The largest of each kind that the header's check lets through.
LARGE = {
    "transparent": lambda: picture(5656, 5656, color=(1, 2, 3, 4), mode="RGBA", compress_level=1),
    "16 bit": lambda: picture(5656, 5656, color=7, mode="I;16", compress_level=1),
    "progressive cmyk": lambda: picture(5656, 5656, "JPEG", (1, 2, 3, 4), "CMYK", progressive=True),
    "webp": lambda: picture(5656, 5656, "WEBP", (1, 2, 3, 4), "RGBA", method=0),
}


@pytest.mark.drawn
@pytest.mark.parametrize("kind", some(LARGE, 2))
async def test_the_largest_images_are_decoded_within_the_limits(kind: str) -> None:
    asked = request(LARGE[kind]())
    async with decoders() as pool:
        assert len(await pool.ask(asked)) == 3 * asked.size[0] * asked.size[1]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux only")
async def test_an_image_that_eats_memory_is_refused_and_its_process_replaced() -> None:
    bomb = png_header(20_000, 20_000) + png_chunk(b"IDAT", zlib.compress(bytes(60_001)))
    async with decoders() as pool:
        with pytest.raises(InvalidImage, match="memory"):
            await pool.ask(
                DecodeImage(data=bomb, header=ImageHeader("PNG", 20_000, 20_000), size=(2048, 2048))
            )
        assert await pool.ask(request(picture(8, 8))) == bytes(RED) * 64


async def test_more_samples_than_the_pipe_takes_are_refused_and_the_process_replaced() -> None:
    data = wav([0.0] * 4_000 * 120, rate=4_000)
    header = checked_audio(data)
    async with decoders() as pool:
        with pytest.raises(InvalidAudio, match="the audio needs more time or memory than one file may use"):
            await pool.ask(DecodeAudio(data=data, header=header, rate=192_000))
        assert len(await pool.ask(DecodeAudio(data=data, header=header, rate=4_000))) == 4 * 4_000 * 120
