"""One answer as it comes: its text goes to the terminal at once, its thoughts beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from jan_serve.cli.client.server_connection import ServerConnection


@dataclass(slots=True)
class Answer:
    """What came. stopped: by Ctrl-C; the text is then what there was. timings: in llama-server's words."""

    model: str = ""
    text: str = ""
    thought: str = ""
    finish_reason: str | None = None
    stopped: bool = False
    usage: dict[str, Any] = field(default_factory=dict[str, Any])
    timings: dict[str, Any] = field(default_factory=dict[str, Any])

    def statistics(self) -> str:
        """Counts and rates for people."""
        if not self.usage:
            return "no statistics: the answer did not reach its end"
        cached = self.usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
        prompt = f"{self.usage['prompt_tokens']} tokens of prompt" + (f" ({cached} cached)" if cached else "")
        rates = [
            f"{words} {self.timings[name]:.1f} tokens/s"
            for name, words in (("prompt_per_second", "read at"), ("predicted_per_second", "written at"))
            if self.timings.get(name)
        ]
        return ", ".join([prompt, f"{self.usage['completion_tokens']} of answer", *rates])


class Reader(Protocol):
    """Who sees an answer while it comes."""

    def text(self, piece: str) -> None:
        """More of the answer."""
        ...

    def thought(self, piece: str) -> None:
        """More of what the model thinks before it."""
        ...


def ask(connection: ServerConnection, request: Mapping[str, Any], reader: Reader) -> Answer:
    """Have a chat request answered. Ctrl-C stops it: the server then stops too. Raises CommandError."""
    answer = Answer()
    texts: list[str] = []
    thoughts: list[str] = []
    with _stoppable(answer), contextlib.closing(connection.events("/v1/chat/completions", request)) as events:
        for event in events:
            answer.model = str(event.get("model") or answer.model)
            answer.usage = event.get("usage") or answer.usage
            answer.timings = event.get("timings") or answer.timings
            for choice in cast(list[dict[str, Any]], event.get("choices") or []):
                answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
                delta: dict[str, Any] = choice.get("delta") or {}
                if delta.get("reasoning_content"):
                    thoughts.append(delta["reasoning_content"])
                    reader.thought(thoughts[-1])
                if delta.get("content"):
                    texts.append(delta["content"])
                    reader.text(texts[-1])
    answer.text = "".join(texts)
    answer.thought = "".join(thoughts)
    return answer


@contextlib.contextmanager
def _stoppable(answer: Answer) -> Generator[None]:
    try:
        yield
    except KeyboardInterrupt:
        answer.stopped = True
