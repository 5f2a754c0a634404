"""Renders a transcription, whole and as events. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from jan_serve.core.events import Completed, GenerationEvent, TextDelta, Usage
from jan_serve.dialects.openai.transcriptions.wire import (
    TextDeltaEvent,
    TextDoneEvent,
    TokenUsage,
    Transcription,
    TranscriptionRequest,
)


class TranscriptionAnswer:
    """Folds the events of an answer. duration: of the sound in seconds, for `verbose_json`; None for others."""

    def __init__(self, request: TranscriptionRequest, duration: float | None) -> None:
        self._request = request
        self._duration = duration
        self._texts: list[str] = []
        self._usage = Usage()

    @property
    def text(self) -> str:
        """Without the space that models begin with."""
        return "".join(self._texts).strip()

    def add(self, event: GenerationEvent) -> None:
        match event:
            case TextDelta() as delta:
                self._texts.append(delta.text)
            case Completed() as completed:
                self._usage = completed.usage
            case _:
                pass

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
        return {
            "type": "tokens",
            "input_tokens": self._usage.prompt_tokens,
            "output_tokens": self._usage.completion_tokens,
            "total_tokens": self._usage.total_tokens,
        }
