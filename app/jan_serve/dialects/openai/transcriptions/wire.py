"""Wire types of /v1/audio/transcriptions, whose requests are forms."""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired, get_args

import msgspec
from typing_extensions import TypedDict

ResponseFormat = Literal["json", "text", "verbose_json"]
FORMATS: Final[tuple[str, ...]] = get_args(ResponseFormat)
TIMED_FORMATS: Final = ("srt", "vtt", "diarized_json")


class TranscriptionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of the form. file: the sound. prompt: words that it may hold. language: of the sound (ISO 639-1)."""

    file: bytes
    model: str | None = None
    prompt: str = ""
    language: str | None = None
    response_format: ResponseFormat = "json"
    temperature: float | None = None
    stream: bool = False


class TokenUsage(TypedDict):
    type: Literal["tokens"]
    input_tokens: int
    output_tokens: int
    total_tokens: int


class Transcription(TypedDict):
    """language, duration (in seconds), task: of `verbose_json`. The language is the request's."""

    text: str
    usage: TokenUsage
    task: NotRequired[str]
    language: NotRequired[str]
    duration: NotRequired[float]


class TextDeltaEvent(TypedDict):
    type: Literal["transcript.text.delta"]
    delta: str


class TextDoneEvent(TypedDict):
    type: Literal["transcript.text.done"]
    text: str
    usage: TokenUsage


FORM_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "WAV, MP3 or FLAC."},
        "model": {"type": "string"},
        "prompt": {"type": "string", "description": "Names and words that the sound may hold."},
        "language": {"type": "string"},
        "response_format": {"type": "string", "enum": list(FORMATS), "default": "json"},
        "temperature": {"type": "number", "default": 0},
        "stream": {"type": "boolean", "default": False},
    },
}
