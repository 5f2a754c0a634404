"""Images and sounds of a prompt: read, checked and counted from their headers, decoded last.

A template sees a random marker in place of each, so no text of a request can pass for an image or a sound. The
template's own placeholders do not get into the prompt: the projector adds those that the model needs.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from jan_serve.audio_files import MAX_FILE_BYTES as MAX_AUDIO_BYTES
from jan_serve.audio_files import MAX_SOUNDS
from jan_serve.audio_files import checked_header as checked_audio
from jan_serve.core.messages import (
    AudioPart,
    AudioPiece,
    ContentPart,
    DocumentPart,
    ImagePart,
    ImagePiece,
    MediaPart,
    MediaPiece,
    Message,
    PromptPiece,
    TextPart,
)
from jan_serve.errors import InvalidAudio, InvalidImage, InvalidRequest, ModelFailed, UnsupportedContent
from jan_serve.generation.ports import EngineClient, ImageFetcher, MediaDecoder
from jan_serve.helpers.kinds import DecodeAudio, DecodeImage
from jan_serve.image_files import (
    MAX_FILES_BYTES,
    MAX_IMAGES,
    image_bytes,
    is_remote,
    shown_pixels,
    shown_size,
)
from jan_serve.image_files import checked_header as checked_image
from jan_serve.text.valid_text import base64_bytes


class ReadMedia(NamedTuple):
    """piece: without pixels or samples, and with as many frames as its header says. param: the request's field."""

    param: str
    piece: MediaPiece
    wanted: DecodeImage | DecodeAudio


def too_many_images(param: str, count: int) -> InvalidImage:
    return InvalidImage(f"{param}: the request has {count} images; the limit is {MAX_IMAGES}", param=param)


def _read_image(param: str, source: str | bytes, most_pixels: int) -> ReadMedia:
    """source: a data URL, base64, or the file. Blocks for the hash, some 20 ms for the largest. Raises InvalidImage."""
    data = image_bytes(source) if isinstance(source, str) else source
    header = checked_image(data)
    size = width, height = shown_size(*header.upright_size, most_pixels)
    piece = ImagePiece(width=width, height=height, digest=hashlib.sha256(data).hexdigest())
    return ReadMedia(param, piece, DecodeImage(data=data, header=header, size=size))


def _read_audio(part: AudioPart, rate: int) -> ReadMedia:
    """rate: samples a second that the model hears. Blocks as `_read_image` does. Raises InvalidAudio."""
    text = part.base64.partition(",")[2] if part.base64[:5].lower() == "data:" else part.base64
    try:
        data = base64_bytes(text, MAX_AUDIO_BYTES) if part.base64 else part.file
    except ValueError as error:
        raise InvalidAudio(f"the audio {error}") from None
    header = checked_audio(data)
    # Another rate makes other samples of the same file.
    digest = hashlib.sha256(data + rate.to_bytes(4)).hexdigest()
    piece = AudioPiece(digest=digest, frames=header.frames_at(rate))
    return ReadMedia(part.param, piece, DecodeAudio(data=data, header=header, rate=rate))


SHOWN_MARKER: Final = "<__media__>"
"""Place of an image or a sound in a prompt that people read; llama.cpp's."""

ModelsWith = Callable[[str], Awaitable[Sequence[str]]]
"""The names of the installed models with a sense: vision or audio."""


class MarkedMessages(msgspec.Struct, frozen=True):
    """Messages with markers in place of media. warnings: about images that were replaced by their notes."""

    messages: tuple[Message, ...]
    media: tuple[ReadMedia, ...] = ()
    secret: str = ""
    warnings: tuple[str, ...] = ()

    def pieces(self, text: str) -> tuple[PromptPiece, ...]:
        """The rendered text, with the media, not decoded, at their markers."""
        if not self.media:
            return (text,)
        parts = re.split(f"{_marker(self.secret, '([0-9]+)')}", text)
        pieces: list[PromptPiece] = []
        for index, part in enumerate(parts):
            if index % 2:
                pieces.append(self.media[int(part)].piece)
            elif part:
                pieces.append(part)
        return tuple(pieces)


class MediaReader:
    """Reads the images and sounds of requests. Keeps none of them."""

    def __init__(
        self,
        decoder: MediaDecoder | None = None,
        fetcher: ImageFetcher | None = None,
        models_with: ModelsWith | None = None,
    ) -> None:
        """decoder: None refuses all media. fetcher: None refuses all URLs of other hosts."""
        self._decoder = decoder
        self._fetcher = fetcher
        self._models_with = models_with

    async def marked(self, messages: tuple[Message, ...], client: EngineClient) -> MarkedMessages:
        """The messages as a template reads them, documents as texts.

        Raises InvalidImage, InvalidAudio, InvalidDocument, UnsupportedContent, ModelFailed.
        """
        parts = [part for message in messages for part in _parts(message.content)]
        if any(isinstance(part, DocumentPart) for part in parts):
            from jan_serve.generation.document_reader import with_texts  # few requests have documents

            messages = await with_texts(messages, self._decoder)
        found = _media(parts)
        if not found:
            return MarkedMessages(messages)
        warnings = await self._warnings(found, client)
        read = iter(await self._read_all(found, client))
        secret = secrets.token_hex(16)
        media: list[ReadMedia] = []

        def text_for(part: MediaPart) -> tuple[str, str]:
            if not _understands(part, client):
                return _note(part), "\n"
            media.append(next(read))
            return _marker(secret, len(media) - 1), ""

        marked = tuple(_replaced(message, text_for) for message in messages)
        return MarkedMessages(marked, tuple(media), secret, warnings)

    async def placed(
        self, parts: Sequence[ContentPart], client: EngineClient
    ) -> tuple[tuple[PromptPiece, ...], tuple[ReadMedia, ...], tuple[str, ...]]:
        """Texts with media, not decoded, between them; the media; and warnings. Raises as `marked`."""
        found = _media(parts)
        warnings = await self._warnings(found, client)
        media = await self._read_all(found, client)
        read = iter(media)
        pieces: list[PromptPiece] = []
        for part in parts:
            if isinstance(part, ImagePart | AudioPart) and _understands(part, client):
                pieces.append(next(read).piece)
                continue
            text = part.text if isinstance(part, TextPart) else _note(part)
            if pieces and isinstance(pieces[-1], str):
                pieces[-1] += text
            else:
                pieces.append(text)
        return tuple(pieces), media, warnings

    async def fetched(self, parts: Sequence[ContentPart], client: EngineClient) -> tuple[ContentPart, ...]:
        """The parts with the files of their images, for several other methods. Raises InvalidImage, InvalidAudio."""
        read = iter(await self._read_all(_media(parts), client))
        found: list[ContentPart] = []
        for part in parts:
            if isinstance(part, ImagePart | AudioPart) and _understands(part, client):
                data = next(read).wanted.data
                part = msgspec.structs.replace(part, file=data) if isinstance(part, ImagePart) else part
            found.append(part)
        return tuple(found)

    async def decoded(
        self, pieces: tuple[PromptPiece, ...], media: Sequence[ReadMedia]
    ) -> tuple[PromptPiece, ...]:
        """The pieces with pixels and samples, one after another. Raises InvalidImage, InvalidAudio."""
        done: dict[PromptPiece, MediaPiece] = {}
        for read in media:
            if read.piece in pieces and read.piece not in done:
                done[read.piece] = await self._decoded(read)
        return tuple(done.get(piece, piece) for piece in pieces) if done else pieces

    async def _warnings(self, parts: Sequence[MediaPart], client: EngineClient) -> tuple[str, ...]:
        """About parts whose notes the model reads. Raises UnsupportedContent, ModelFailed for one that has none."""
        unread = [part for part in parts if not _understands(part, client)]
        for part in unread:
            if isinstance(part, AudioPart) or part.note is None:
                raise await self._unread(part, client)
        return tuple(f"{part.param}: this model reads text only; the image was left out" for part in unread)

    async def _unread(self, part: MediaPart, client: EngineClient) -> UnsupportedContent | ModelFailed:
        fault = client.facts.projector_fault
        if fault:
            return ModelFailed(f"{client.name} is served for text only: {fault}", retry_after=None)
        what, sense, verb = (
            ("an image", "vision", "see") if isinstance(part, ImagePart) else ("audio", "audio", "hear")
        )
        others = await self._models_with(sense) if self._models_with is not None else ()
        other = f"{others[0]} can {verb}" if others else f"no model of this server can {verb}"
        reads = (
            f"{client.name} cannot {verb}" if client.facts.modalities else f"{client.name} reads text only"
        )
        return UnsupportedContent(f"{part.param}: {what}, and {reads}; {other}", param=part.param)

    async def _read_all(self, parts: Sequence[MediaPart], client: EngineClient) -> tuple[ReadMedia, ...]:
        """Bytes and headers of those that the model understands. Raises InvalidImage, InvalidAudio."""
        parts = [part for part in parts if _understands(part, client)]
        images = [part for part in parts if isinstance(part, ImagePart)]
        if len(images) > MAX_IMAGES:
            raise too_many_images(images[MAX_IMAGES].param, len(images))
        sounds = [part for part in parts if isinstance(part, AudioPart)]
        if len(sounds) > MAX_SOUNDS:
            limit = f"the request has {len(sounds)} sounds; the limit is {MAX_SOUNDS}"
            raise InvalidAudio(limit).about(sounds[MAX_SOUNDS].param)
        found: list[ReadMedia] = []
        most_pixels, total = shown_pixels(len(images)), 0
        for part in parts:
            read = await self._read(part, client, most_pixels)
            total += len(read.wanted.data) if isinstance(part, ImagePart) else 0
            if total > MAX_FILES_BYTES:
                limit = (
                    f"the images up to this one have {total} bytes together; the limit is {MAX_FILES_BYTES}"
                )
                raise InvalidImage(limit).about(part.param)
            found.append(read)
        return tuple(found)

    async def _read(self, part: MediaPart, client: EngineClient, most_pixels: int) -> ReadMedia:
        try:
            if isinstance(part, AudioPart):
                return await asyncio.to_thread(_read_audio, part, client.facts.audio_rate)
            source = part.file or part.url
            if not part.file and is_remote(part.url):
                if self._fetcher is None:
                    raise InvalidImage(
                        "this server fetches no images from other hosts; send a data URL with base64"
                    )
                source = await self._fetcher(part.url)
            return await asyncio.to_thread(_read_image, part.param, source, most_pixels)
        except InvalidRequest as error:
            raise error.about(part.param) from None

    async def _decoded(self, media: ReadMedia) -> MediaPiece:
        piece = media.piece
        if self._decoder is None:
            what = "images" if isinstance(piece, ImagePiece) else "audio"
            raise UnsupportedContent(f"{media.param}: this server decodes no {what}", param=media.param)
        try:
            data = await self._decoder(media.wanted)
        except InvalidRequest as error:
            raise error.about(media.param) from None
        if isinstance(piece, ImagePiece):
            return msgspec.structs.replace(piece, pixels=data)
        return msgspec.structs.replace(piece, frames=len(data) // 4, samples=data)


def shown(pieces: Sequence[PromptPiece]) -> str:
    """The pieces as people read them."""
    return "".join(piece if isinstance(piece, str) else SHOWN_MARKER for piece in pieces)


def _understands(part: MediaPart, client: EngineClient) -> bool:
    return ("vision" if isinstance(part, ImagePart) else "audio") in client.facts.modalities


def _note(part: ContentPart) -> str:
    return (part.note or "") if isinstance(part, ImagePart) else ""


def _parts(content: str | tuple[ContentPart, ...] | None) -> tuple[ContentPart, ...]:
    return content if isinstance(content, tuple) else ()


def _media(parts: Sequence[ContentPart]) -> list[MediaPart]:
    return [part for part in parts if isinstance(part, ImagePart | AudioPart)]


def _marker(secret: str, number: int | str) -> str:
    """Letters and digits only: templates trim, escape and quote what they show."""
    return f"image{secret}n{number}e"


def _replaced(message: Message, text_for: Callable[[MediaPart], tuple[str, str]]) -> Message:
    """The message as one text if it has media. text_for: a text, and what is between it and others.

    Texts are joined by newlines.
    """
    if not _media(_parts(message.content)):
        return message
    text, apart = "", ""
    for index, part in enumerate(_parts(message.content)):
        assert not isinstance(part, DocumentPart)
        shown_text, around = (part.text, "\n") if isinstance(part, TextPart) else text_for(part)
        if index:
            text += "\n" if apart == around == "\n" else ""
        text, apart = text + shown_text, around
    return msgspec.structs.replace(message, content=text)
