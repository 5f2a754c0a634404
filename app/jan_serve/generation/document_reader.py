"""Documents of a request as text, before a template sees them. PDFs are read in a process with limits."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from jan_serve.core.messages import ContentPart, DocumentPart, Message, TextPart
from jan_serve.errors import InvalidDocument, UnsupportedContent
from jan_serve.generation.ports import MediaDecoder
from jan_serve.helpers.kinds import DecodePdf
from jan_serve.text.valid_text import base64_bytes

MAX_DOCUMENTS: Final = 16
MAX_FILE_BYTES: Final = 32 << 20
"""Anthropic's limit is the same."""

_APART: Final = "\n\n"
_PDF: Final = b"%PDF-"
_PDF_WITHIN: Final = 1024
"""Readers take a file with something before its head (ISO 32000, annex H)."""


async def with_texts(messages: tuple[Message, ...], decoder: MediaDecoder | None) -> tuple[Message, ...]:
    """The messages with the text of each document in its place. Raises InvalidDocument, UnsupportedContent; those of
    the decoder.
    """
    found = [
        part
        for message in messages
        if isinstance(message.content, tuple)
        for part in message.content
        if isinstance(part, DocumentPart)
    ]
    if not found:
        return messages
    if len(found) > MAX_DOCUMENTS:
        param = found[MAX_DOCUMENTS].param
        raise InvalidDocument(
            f"{param}: the request has {len(found)} documents; the limit is {MAX_DOCUMENTS}", param=param
        )
    texts = iter([await _text(part, decoder) for part in found])

    def read(content: tuple[ContentPart, ...]) -> tuple[ContentPart, ...]:
        """Templates put texts one after another; each document is a paragraph."""
        last = len(content) - 1
        return tuple(
            TextPart(f"{_APART if at else ''}{next(texts)}{_APART if at < last else ''}")
            if isinstance(part, DocumentPart)
            else part
            for at, part in enumerate(content)
        )

    return tuple(
        msgspec.structs.replace(message, content=read(message.content))
        if isinstance(message.content, tuple)
        else message
        for message in messages
    )


async def _text(part: DocumentPart, decoder: MediaDecoder | None) -> str:
    """Its text below its name, or its note."""
    try:
        text = await _read(part.base64, decoder)
    except InvalidDocument as error:
        if part.note is not None:
            return part.note
        raise InvalidDocument(f"{part.param}: {error.message}", param=part.param) from None
    return f"{part.name}:\n\n{text}" if part.name else text


async def _read(base64: str, decoder: MediaDecoder | None) -> str:
    if base64[:5].lower() == "data:":
        base64 = base64.partition(",")[2]
    try:
        data = await asyncio.to_thread(base64_bytes, base64, MAX_FILE_BYTES)
    except ValueError as error:
        raise InvalidDocument(f"the file {error}") from None
    if _PDF in data[:_PDF_WITHIN]:
        if decoder is None:
            raise UnsupportedContent("messages: this server reads no PDF", param="messages")
        return (await decoder(DecodePdf(data=data))).decode()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or not text.strip():
        raise InvalidDocument("the file is neither a PDF nor text in UTF-8")
    return text
