"""POST /v1/audio/transcriptions: a form as a chat with the sound and an instruction, and its answer as a text."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NotRequired, get_args

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from typing_extensions import TypedDict

from jan_serve.audio_files import checked_header
from jan_serve.core.events import Completed, GenerationEvent, TextDelta
from jan_serve.core.messages import AudioPart, Message, TextPart
from jan_serve.core.request import ChatPrompt, GenerationRequest, SamplingParams
from jan_serve.dialects.openai.dialect import OpenAIParts
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import FoldedAnswer, answer
from jan_serve.dialects.shared.default_error_body import error_body
from jan_serve.dialects.shared.generation_fields import require
from jan_serve.dialects.shared.wire_types import wrong
from jan_serve.errors import InvalidAudio, InvalidRequest
from jan_serve.http.multipart import FormField, form_fields
from jan_serve.http.sse import STREAMED

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


_MAX_TEXT: Final = 10_000
_IGNORED: Final = frozenset({"chunking_strategy"})
_REFUSED: Final = {
    "timestamp_granularities[]": "timestamp_granularities: models of this server give no times",
    "timestamp_granularities": "timestamp_granularities: models of this server give no times",
    "include[]": "include: a transcription has no log-probabilities",
    "include": "include: a transcription has no log-probabilities",
}


def transcription_form(fields: Sequence[FormField]) -> TranscriptionRequest:
    found: dict[str, Any] = {}
    for field in fields:
        name = field.name
        if name in _REFUSED:
            raise InvalidRequest(_REFUSED[name], param=name.removesuffix("[]"))
        if name in found:
            raise wrong(name, "given twice")
        if name == "file":
            found[name] = field.data
        elif name in TranscriptionRequest.__struct_fields__:
            found[name] = _value(name, field.text())
        elif name not in _IGNORED:
            raise wrong(name[:100], "no field of this form")
    if "file" not in found:
        raise wrong("file", "the form has no file")
    request = TranscriptionRequest(**found)
    if request.stream and request.response_format == "verbose_json":
        raise wrong("response_format", "a stream is json or text")
    return request


def generation_request(request: TranscriptionRequest) -> GenerationRequest:
    instruction = "Transcribe this audio word for word."
    if request.language:
        instruction += f" Its language is {request.language}."
    if request.prompt:
        instruction += f" It may hold these words: {request.prompt}"
    content = (AudioPart(param="file", file=request.file), TextPart(instruction))
    return GenerationRequest(
        model=request.model or None,
        prompt=ChatPrompt(messages=(Message(role="user", content=content),)),
        sampling=SamplingParams(temperature=request.temperature or 0.0),
    )


def _value(name: str, text: str) -> Any:
    if len(text) > _MAX_TEXT:
        raise wrong(name, f"{len(text)} characters; the limit is {_MAX_TEXT}")
    match name:
        case "temperature":
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise wrong("temperature", "not a number")
            require("temperature", value, 0, limits.MAX_TEMPERATURE)
            return value
        case "stream":
            if text.lower() not in ("true", "false", "1", "0"):
                raise wrong(name, "true or false")
            return text.lower() in ("true", "1")
        case "response_format" if text in TIMED_FORMATS:
            raise wrong(name, f"models of this server give no times or speakers, which {text} needs")
        case "response_format" if text not in FORMATS:
            raise wrong(name, f"one of {', '.join(FORMATS)}")
        case _:
            return text


class TranscriptionAnswer(FoldedAnswer):
    """duration: of the sound in seconds, for `verbose_json`; None for others."""

    def __init__(self, request: TranscriptionRequest, duration: float | None) -> None:
        super().__init__()
        self._request = request
        self._duration = duration

    @property
    def text(self) -> str:
        """Without the space that models begin with."""
        return self.choices[0].text.strip()

    def body(self) -> Transcription:
        answer: Transcription = {"text": self.text, "usage": self._token_usage()}
        if self._duration is not None:
            answer["task"] = "transcribe"
            answer["duration"] = round(self._duration, 3)
            if self._request.language:
                answer["language"] = self._request.language
        return answer

    def chunks(self, event: GenerationEvent) -> Iterator[TextDeltaEvent | TextDoneEvent]:
        """What a stream sends for an event."""
        self.add(event)
        match event:
            case TextDelta() as delta if delta.text:
                yield {"type": "transcript.text.delta", "delta": delta.text}
            case Completed():
                yield {"type": "transcript.text.done", "text": self.text, "usage": self._token_usage()}
            case _:
                pass

    def _token_usage(self) -> TokenUsage:
        usage = self.completed.usage
        return {
            "type": "tokens",
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.completion_tokens,
            "total_tokens": usage.total_tokens,
        }


def add_routes(router: APIRouter, parts: OpenAIParts) -> None:
    @router.post(
        "/v1/audio/transcriptions",
        summary="Transcription",
        response_model=Transcription,
        responses={200: {"content": {"text/plain": {}, **STREAMED[200]["content"]}}},
        openapi_extra={
            "requestBody": {"content": {"multipart/form-data": {"schema": FORM_SCHEMA}}, "required": True}
        },
    )
    async def create_transcription(request: Request) -> Response:
        """Write down what a sound says."""
        fields = form_fields(request.headers.get("content-type", ""), await request.body())
        form = transcription_form(fields)
        renderer = TranscriptionAnswer(form, await _duration(form))
        events = parts.service.generate(generation_request(form))
        reply = await answer(
            request, events, renderer, error_body, parts.services.streams, stream=form.stream
        )
        if form.response_format == "text" and not form.stream:
            return PlainTextResponse(renderer.text + "\n")
        return reply


async def _duration(form: TranscriptionRequest) -> float | None:
    """Length of the sound in seconds, where the answer has it. Raises InvalidAudio."""
    if form.response_format != "verbose_json":
        return None
    try:
        return (await asyncio.to_thread(checked_header, form.file)).seconds
    except InvalidAudio as error:
        raise error.about("file") from None
