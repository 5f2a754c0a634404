"""The head of every reply of TGI's /v1 routes, and the TGI version that the server claims."""

from __future__ import annotations

from typing import Final

from jan_serve import __version__
from jan_serve.core.transcript import started_s
from jan_serve.dialects.tgi.chat.wire import ChatChunk
from jan_serve.dialects.tgi.completions.wire import CompletionChoice, CompletionReply

TGI_VERSION: Final = "3.3.6"
DOCKER_LABEL: Final = f"jan-serve-{__version__}"
FINGERPRINT: Final = f"{TGI_VERSION}-{DOCKER_LABEL}"
SERVED: Final = "tgi"
"""The model name that stands for the default model."""


def requested_model(name: str | None) -> str | None:
    """The model or adapter that a request names, if any."""
    return None if name in (None, "", SERVED) else name


class ReplyFacts:
    def __init__(self, model: str) -> None:
        self.model = model
        self.created = started_s()

    def completion(self, choices: list[CompletionChoice]) -> CompletionReply:
        """A reply or event of /v1/completions."""
        return {
            "object": "text_completion",
            "id": "",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": choices,
        }

    def chunk(self) -> ChatChunk:
        """An event of a chat, without choices and counts."""
        return {
            "object": "chat.completion.chunk",
            "id": "",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": FINGERPRINT,
            "choices": [],
            "usage": None,
        }
