"""Wire types of the content blocks of a request."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, cast

from pydantic import Discriminator, Tag

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, WireModel


class TextBlock(WireModel):
    type: Literal["text"]
    text: str


class Base64Source(WireModel):
    type: Literal["base64"]
    media_type: str
    data: str


class UrlSource(WireModel):
    type: Literal["url"]
    url: str


class FileSource(WireModel):
    """A file of Anthropic's Files API, which this server lacks."""

    type: Literal["file"]
    file_id: str


class ImageBlock(WireModel):
    type: Literal["image"]
    source: Annotated[Base64Source | UrlSource | FileSource, Discriminator("type")]


class PlainTextSource(WireModel):
    type: Literal["text"]
    data: str


class ContentSource(WireModel):
    """content: text, or blocks of text and images."""

    type: Literal["content"]
    content: (
        str
        | Annotated[
            list[Annotated[TextBlock | ImageBlock, Discriminator("type")]],
            FirstError(),
            AtMost(limits.MAX_PARTS, "messages.content.source.content"),
        ]
    )


class DocumentBlock(WireModel):
    """A document: texts are read, files are rejected."""

    type: Literal["document"]
    source: Annotated[
        Base64Source | UrlSource | FileSource | PlainTextSource | ContentSource, Discriminator("type")
    ]
    title: str | None = None
    context: str | None = None


class SearchResultBlock(WireModel):
    """A passage that the client found."""

    type: Literal["search_result"]
    source: str
    title: str
    content: Annotated[list[TextBlock], FirstError(), AtMost(limits.MAX_PARTS, "messages.content.content")]


class ThinkingBlock(WireModel):
    """A thought of the model. signature: of any server."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(WireModel):
    """A thought that only Anthropic can read: left out."""

    type: Literal["redacted_thinking"]


class ToolUseBlock(WireModel):
    """A call by the model."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class OtherBlock(WireModel):
    """A block of a tool or service that this server lacks: left out."""

    type: str


def tag_of(value: object, known: frozenset[str]) -> str | None:
    """The member `type` if it is among `known`, else `other`; None if it is no text."""
    if isinstance(value, dict):
        kind: object = cast(dict[str, Any], value).get("type")
    else:
        kind = getattr(value, "type", None)
    if not isinstance(kind, str):
        return None
    return kind if kind in known else "other"


_INNER_TAGS: Final = frozenset({"text", "image", "document", "search_result"})
_TAGS: Final = _INNER_TAGS | {"thinking", "redacted_thinking", "tool_use", "tool_result"}


def _discriminator(known: frozenset[str]) -> Discriminator:
    return Discriminator(
        lambda value: tag_of(value, known),
        custom_error_type="no_type",
        custom_error_message="a block needs a type, a text",
    )


ResultBlock = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[ImageBlock, Tag("image")]
    | Annotated[DocumentBlock, Tag("document")]
    | Annotated[SearchResultBlock, Tag("search_result")]
    | Annotated[OtherBlock, Tag("other")],
    _discriminator(_INNER_TAGS),
]


class ToolResultBlock(WireModel):
    """The result of a call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: (
        str
        | Annotated[list[ResultBlock], FirstError(), AtMost(limits.MAX_PARTS, "messages.content.content")]
        | None
    ) = None
    is_error: bool | None = None


Block = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[ImageBlock, Tag("image")]
    | Annotated[DocumentBlock, Tag("document")]
    | Annotated[SearchResultBlock, Tag("search_result")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[RedactedThinkingBlock, Tag("redacted_thinking")]
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Annotated[ToolResultBlock, Tag("tool_result")]
    | Annotated[OtherBlock, Tag("other")],
    _discriminator(_TAGS),
]
Content = str | Annotated[list[Block], FirstError(), AtMost(limits.MAX_PARTS, "messages.content")]
