"""What a tool of an MCP server returned, cut to what fits into a chat. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final, cast

import msgspec

from jan_serve.errors import InvalidImage
from jan_serve.image_files import checked_header

MAX_TEXT: Final = 100_000
"""Characters of a result. A model with a context of 32k tokens reads about as many."""

MAX_PICTURES: Final = 8


class ToolResult(msgspec.Struct, frozen=True):
    """pictures: data URLs. failed: the tool, its server or the call to it failed, and the text says why."""

    text: str
    pictures: tuple[str, ...] = ()
    failed: bool = False

    def content(self) -> str | list[dict[str, Any]]:
        """The content of the message of role `tool`."""
        if not self.pictures:
            return self.text
        text = [{"type": "text", "text": self.text}] if self.text else []
        return [*text, *({"type": "image_url", "image_url": {"url": url}} for url in self.pictures)]


def read_result(raw: Any) -> ToolResult:
    """The result of `tools/call`. Never raises: what cannot be shown is named in the text."""
    result = cast(dict[str, Any], raw) if isinstance(raw, dict) else {}
    blocks = result.get("content")
    texts: list[str] = []
    pictures: list[str] = []
    for block in cast(list[Any], blocks) if isinstance(blocks, list) else ():
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "resource", "resource": {"text": str(text)}}:
                texts.append(text)
            case {"type": "resource_link", "uri": str(uri)}:
                texts.append(f"[a link: {uri[:1000]}]")
            case {"type": "image", "data": str(data)}:
                texts += _add_picture(data, pictures)
            case {"type": str(kind)}:
                texts.append(f"[content of type {kind[:40]}, which cannot be shown here]")
            case _:
                texts.append("[content without a type]")
    if not texts and not pictures and result.get("structuredContent") is not None:
        texts.append(json.dumps(result["structuredContent"], ensure_ascii=False))
    if not texts and not pictures:
        texts.append("[no content]")
    return ToolResult(_cut("\n".join(texts)), tuple(pictures), result.get("isError") is True)


def _add_picture(data: str, pictures: list[str]) -> list[str]:
    """Add the picture, or return what is said in its place."""
    if len(pictures) == MAX_PICTURES:
        return [f"[a picture beyond the {MAX_PICTURES} that a result may have]"]
    try:
        file = base64.b64decode(data, validate=True)
        header = checked_header(file)
    except (InvalidImage, binascii.Error, ValueError) as error:
        return [f"[a picture that cannot be shown: {error}]"]
    # The type that the bytes have, whatever the server says.
    pictures.append(f"data:image/{header.format.lower()};base64,{base64.b64encode(file).decode()}")
    return []


def _cut(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n[cut: the first {MAX_TEXT} of {len(text)} characters]"
