"""Chat messages, their media, tools, and the form of a model's calls, independent of a dialect's wire types."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool", "function"]


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    text: str


DOCUMENT_NOTE: Final = "[A document, which this server cannot read]"
IMAGE_NOTE: Final = "(The tool gave an image here, and this model reads text only.)"
"""What a model that cannot see reads in place of an image in a tool's result."""


class ImagePart(msgspec.Struct, frozen=True, tag="image"):
    """An image as the request has it: a data URL, base64, or a URL to fetch. param: its field, for errors.

    note: what a model that cannot see reads in its place; None: the request is rejected. file: empty unless it was read
    before.
    """

    url: str
    param: str = "messages"
    note: str | None = None
    file: bytes = b""


class AudioPart(msgspec.Struct, frozen=True, tag="audio"):
    """A sound as the request has it: base64, or the file itself if that is empty. param: its field, for errors."""

    base64: str = ""
    param: str = "messages"
    file: bytes = b""


class DocumentPart(msgspec.Struct, frozen=True, tag="document"):
    """A PDF or a text file as the request has it: base64, alone or in a data URL. param: its field, for errors.

    note: what the model reads in place of a file that cannot be read; None: the request is rejected.
    """

    base64: str
    param: str = "messages"
    name: str | None = None
    note: str | None = None


MediaPart = ImagePart | AudioPart
ContentPart = TextPart | ImagePart | AudioPart | DocumentPart
"""A document is text before a template sees it."""


class FunctionCall(msgspec.Struct, frozen=True):
    """arguments: JSON text as the model wrote it; it may not parse."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """A FunctionCall with the id that its result refers to."""

    id: str
    function: FunctionCall


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn. content: None if the turn has only tool calls. role: a Role, or one that only the template knows."""

    role: Role | str
    content: str | tuple[ContentPart, ...] | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning_content: str | None = None


NO_ARGUMENTS: Final[dict[str, Any]] = {"type": "object", "properties": {}}
"""The parameters of a tool that has none: APIs let them be absent."""


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call; `parameters` is a JSON Schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])
    strict: bool | None = None


class ToolChoice(msgspec.Struct, frozen=True):
    """Which tools the model may or must call. name: for `named` only. among: the only ones; None is all."""

    mode: Literal["none", "auto", "required", "named"] = "auto"
    name: str | None = None
    among: frozenset[str] | None = None


class CallForm(msgspec.Struct, frozen=True, kw_only=True):
    """What a template's calls have of its own.

    layout: number among the layouts of the format. texts: the texts of the layout in order; empty for its own.
    python_words: values that are not within others are True, False and None.
    """

    layout: int = 0
    texts: tuple[str, ...] = ()
    python_words: bool = False


class FormatName(msgspec.Struct, frozen=True):
    """A chat format by its name. form: None for its own form of calls."""

    name: str
    form: CallForm | None = None


class ImagePiece(msgspec.Struct, frozen=True, kw_only=True, tag="image"):
    """An image. width, height: in pixels, of `pixels`. digest: SHA-256 of the file that the client sent, in hex.

    pixels: RGB, 8 bits a channel, rows from the top. Empty: the image is only counted.
    """

    width: int
    height: int
    digest: str
    pixels: bytes = b""


class AudioPiece(msgspec.Struct, frozen=True, kw_only=True, tag="audio"):
    """Sound. samples: float32, mono, at the rate of the model's projector; frames: how many. digest: as of an image.

    Without samples, the sound is only counted.
    """

    digest: str
    frames: int = 0
    samples: bytes = b""


MediaPiece = ImagePiece | AudioPiece
PromptPiece = str | tuple[int, ...] | ImagePiece | AudioPiece
"""A part of a prompt: text, token ids, or what the model's projector reads."""
