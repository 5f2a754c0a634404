"""The bytes of an image as requests have it: a data URL (RFC 2397) or bare base64."""

from __future__ import annotations

import re
from typing import Final

from jan_serve.errors import InvalidImage
from jan_serve.image_files.header import MAX_FILE_BYTES
from jan_serve.text.base64_text import base64_bytes

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
