"""A form of /v1/audio/transcriptions as a generation request: a chat with the sound and an instruction. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from jan_serve.core.messages import AudioPart, Message, TextPart
from jan_serve.core.request import ChatPrompt, GenerationRequest
from jan_serve.core.sampling import SamplingParams
from jan_serve.dialects.openai.parse_common import require
from jan_serve.dialects.openai.transcriptions.wire import FORMATS, TIMED_FORMATS, TranscriptionRequest
from jan_serve.dialects.shared import limits
from jan_serve.errors import InvalidRequest
from jan_serve.http.multipart import FormField

_MAX_TEXT: Final = 10_000
_IGNORED: Final = frozenset({"chunking_strategy"})
_REFUSED: Final = {
    "timestamp_granularities[]": "timestamp_granularities: models of this server give no times",
    "timestamp_granularities": "timestamp_granularities: models of this server give no times",
    "include[]": "include: a transcription has no log-probabilities",
    "include": "include: a transcription has no log-probabilities",
}


def transcription_form(fields: Sequence[FormField]) -> TranscriptionRequest:
    """Raises InvalidRequest."""
    found: dict[str, Any] = {}
    for field in fields:
        name = field.name
        if name in _REFUSED:
            raise InvalidRequest(_REFUSED[name], param=name.removesuffix("[]"))
        if name in found:
            raise InvalidRequest(f"{name}: given twice", param=name)
        if name == "file":
            found[name] = field.data
        elif name in TranscriptionRequest.__struct_fields__:
            found[name] = _value(name, field.text())
        elif name not in _IGNORED:
            raise InvalidRequest(f"{name[:100]}: no field of this form", param=name[:100])
    if "file" not in found:
        raise InvalidRequest("file: the form has no file", param="file")
    request = TranscriptionRequest(**found)
    if request.stream and request.response_format == "verbose_json":
        raise InvalidRequest("response_format: a stream is json or text", param="response_format")
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
        raise InvalidRequest(f"{name}: {len(text)} characters; the limit is {_MAX_TEXT}", param=name)
    match name:
        case "temperature":
            return _temperature(text)
        case "stream":
            if text.lower() not in ("true", "false", "1", "0"):
                raise InvalidRequest("stream: true or false", param=name)
            return text.lower() in ("true", "1")
        case "response_format" if text in TIMED_FORMATS:
            raise InvalidRequest(
                f"response_format: models of this server give no times or speakers, which {text} needs",
                param=name,
            )
        case "response_format" if text not in FORMATS:
            raise InvalidRequest(f"response_format: one of {', '.join(FORMATS)}", param=name)
        case _:
            return text


def _temperature(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidRequest("temperature: not a number", param="temperature")
    require("temperature", value, 0, limits.MAX_TEMPERATURE)
    return value
