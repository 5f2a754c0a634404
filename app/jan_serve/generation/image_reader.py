"""Images of a prompt: read, checked and counted from their headers, decoded last.

A template sees a random marker in place of an image, so that its own placeholders stay out of the prompt, which the
model's projector brings, and no text of a request can pass for an image.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from jan_serve.core.media import ImagePiece, PromptPiece
from jan_serve.core.messages import ContentPart, ImagePart, Message, TextPart
from jan_serve.errors import InvalidImage, InvalidRequest, UnsupportedContent
from jan_serve.generation.ports import EngineClient, ImageDecoder, ImageFetcher
from jan_serve.image_files.data_url import image_bytes, is_remote
from jan_serve.image_files.header import ImageHeader, checked_header
from jan_serve.image_files.limits import MAX_IMAGES, shown_size
from jan_serve.ipc.image_decoding import DecodeImage

SHOWN_MARKER: Final = "<__media__>"
"""Of images in a prompt that people read; llama.cpp's."""


class ReadImage(NamedTuple):
    """An image whose header is within the limits. piece: without pixels. param: the request's field."""

    param: str
    data: bytes
    header: ImageHeader
    piece: ImagePiece


class MarkedMessages(msgspec.Struct, frozen=True):
    """Messages with markers in place of images. warnings: about images that were replaced by their notes."""

    messages: tuple[Message, ...]
    images: tuple[ReadImage, ...] = ()
    secret: str = ""
    warnings: tuple[str, ...] = ()

    def pieces(self, text: str) -> tuple[str | ReadImage, ...]:
        """The rendered text, with the images at their markers."""
        if not self.images:
            return (text,)
        parts = re.split(f"{_marker(self.secret, '([0-9]+)')}", text)
        pieces: list[str | ReadImage] = []
        for index, part in enumerate(parts):
            if index % 2:
                pieces.append(self.images[int(part)])
            elif part:
                pieces.append(part)
        return tuple(pieces)


class ImageReader:
    """Reads the images of requests. Keeps none of them."""

    def __init__(
        self,
        decoder: ImageDecoder | None = None,
        fetcher: ImageFetcher | None = None,
        seeing: Callable[[], Awaitable[Sequence[str]]] | None = None,
    ) -> None:
        """decoder: None refuses all images. fetcher: None refuses all URLs of other hosts.

        seeing: names of the installed models that see.
        """
        self._decoder = decoder
        self._fetcher = fetcher
        self._seeing = seeing

    async def marked(self, messages: tuple[Message, ...], client: EngineClient) -> MarkedMessages:
        """The messages as a template reads them. Raises InvalidImage, UnsupportedContent."""
        parts = [part for message in messages for part in _image_parts(message.content)]
        if not parts:
            return MarkedMessages(messages)
        if not _sees(client):
            warnings = await self._without_sight(parts, client)
            noted = tuple(
                _replaced(message, lambda part: part.note or "", apart="\n") for message in messages
            )
            return MarkedMessages(noted, warnings=warnings)
        images = await self._read_all(parts)
        secret = secrets.token_hex(16)
        numbers = iter(range(len(images)))
        marked = tuple(
            _replaced(message, lambda _: _marker(secret, next(numbers)), apart="") for message in messages
        )
        return MarkedMessages(marked, images, secret)

    async def placed(
        self, parts: Sequence[ContentPart], client: EngineClient
    ) -> tuple[tuple[str | ReadImage, ...], tuple[str, ...]]:
        """Texts with images between them, and warnings. Raises InvalidImage, UnsupportedContent."""
        images = _image_parts(tuple(parts))
        if images and not _sees(client):
            warnings = await self._without_sight(images, client)
            text = "".join(part.text if isinstance(part, TextPart) else part.note or "" for part in parts)
            return (text,), warnings
        read = iter(await self._read_all(images))
        return tuple(part.text if isinstance(part, TextPart) else next(read) for part in parts), ()

    async def decoded(self, pieces: Sequence[str | tuple[int, ...] | ReadImage]) -> tuple[PromptPiece, ...]:
        """The pieces with the pixels of their images, one after another. Raises InvalidImage."""
        known: dict[str, ImagePiece] = {}
        for piece in pieces:
            if isinstance(piece, ReadImage) and piece.piece.digest not in known:
                known[piece.piece.digest] = await self._with_pixels(piece)
        return tuple(known[piece.piece.digest] if isinstance(piece, ReadImage) else piece for piece in pieces)

    async def _without_sight(self, parts: Sequence[ImagePart], client: EngineClient) -> tuple[str, ...]:
        """Warnings about images whose notes the model reads. Raises UnsupportedContent for one that has none."""
        rejected = next((part for part in parts if part.note is None), None)
        if rejected is None:
            return tuple(
                f"{part.param}: this model reads text only; the image was left out" for part in parts
            )
        others = await self._seeing() if self._seeing is not None else ()
        other = f"{others[0]} can see" if others else "no model of this server can see"
        raise UnsupportedContent(
            f"{rejected.param}: an image, and {client.name} reads text only; {other}", param=rejected.param
        )

    async def _read_all(self, parts: Sequence[ImagePart]) -> tuple[ReadImage, ...]:
        """Their bytes and headers. Raises InvalidImage, with the field and the limit."""
        if len(parts) > MAX_IMAGES:
            param = parts[MAX_IMAGES].param
            raise InvalidImage(
                f"{param}: the request has {len(parts)} images; the limit is {MAX_IMAGES}", param=param
            )
        return tuple([await self._read(part) for part in parts])

    async def _read(self, part: ImagePart) -> ReadImage:
        try:
            if is_remote(part.url):
                if self._fetcher is None:
                    raise InvalidImage(
                        "this server fetches no images from other hosts; send a data URL with base64"
                    )
                data = await self._fetcher(part.url)
                return await asyncio.to_thread(_checked, part.param, data)
            return await asyncio.to_thread(_checked, part.param, part.url)
        except InvalidImage as error:
            raise _of_field(error, part.param) from None

    async def _with_pixels(self, image: ReadImage) -> ImagePiece:
        if self._decoder is None:
            raise UnsupportedContent(f"{image.param}: this server decodes no images", param=image.param)
        size = (image.piece.width, image.piece.height)
        try:
            pixels = await self._decoder(DecodeImage(data=image.data, header=image.header, size=size))
        except InvalidImage as error:
            raise _of_field(error, image.param) from None
        return msgspec.structs.replace(image.piece, pixels=pixels)


def _sees(client: EngineClient) -> bool:
    return "vision" in client.facts.modalities


def counted(pieces: Sequence[str | tuple[int, ...] | ReadImage]) -> tuple[PromptPiece, ...]:
    """The pieces with images that have no pixels, to count their tokens."""
    return tuple(piece.piece if isinstance(piece, ReadImage) else piece for piece in pieces)


def shown(pieces: Sequence[str | ReadImage]) -> str:
    """The pieces as people read them."""
    return "".join(SHOWN_MARKER if isinstance(piece, ReadImage) else piece for piece in pieces)


def _checked(param: str, source: str | bytes) -> ReadImage:
    """Blocks for the hash, some 20 ms for the largest images. Raises InvalidImage."""
    data = image_bytes(source) if isinstance(source, str) else source
    header = checked_header(data)
    width, height = shown_size(*header.upright_size)
    piece = ImagePiece(width=width, height=height, digest=hashlib.sha256(data).hexdigest())
    return ReadImage(param, data, header, piece)


def _of_field(error: InvalidRequest, param: str) -> InvalidImage:
    return InvalidImage(f"{param}: {error.message}", param=param)


def _image_parts(content: str | tuple[ContentPart, ...] | None) -> list[ImagePart]:
    if content is None or isinstance(content, str):
        return []
    return [part for part in content if isinstance(part, ImagePart)]


def _marker(secret: str, number: int | str) -> str:
    """Letters and digits only: templates trim, escape and quote what they show."""
    return f"image{secret}n{number}e"


def _replaced(message: Message, text_for: Callable[[ImagePart], str], *, apart: str) -> Message:
    """The message as one text if it has images. apart: between an image and a text; texts are joined by newlines."""
    if not _image_parts(message.content):
        return message
    text, last = "", None
    for part in message.content or ():
        assert not isinstance(part, str)
        if last is not None:
            both_text = isinstance(part, TextPart) and isinstance(last, TextPart)
            text += "\n" if both_text else apart
        text += part.text if isinstance(part, TextPart) else text_for(part)
        last = part
    return msgspec.structs.replace(message, content=text)
