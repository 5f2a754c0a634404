"""Renders an answer of /v1/chat/completions, whole and as chunks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    TextDelta,
    TokenInfo,
    ToolCallDelta,
)
from jan_serve.core.request import GenerationRequest
from jan_serve.dialects.lmdeploy.chat.wire import CalledTool, ChatRequest, Choice, Logprobs, TokenLogprob
from jan_serve.dialects.lmdeploy.common import Answer, ReplyFacts, ids_of, texts_of, wants_usage
from jan_serve.dialects.shared.answers import FoldedChoice, stop_detail


class ChatRenderer(Answer):
    """A stream has thoughts, text and calls, the finish reason without text, then the usage on request."""

    def __init__(self, head: ReplyFacts, body: ChatRequest, generation: GenerationRequest) -> None:
        super().__init__(generation.n, include_stop=generation.stopping.include_stop)
        self._head = head
        self._shows_ids = bool(body.return_token_ids)
        self._top = None if generation.logprobs is None else body.top_logprobs
        """Candidates besides each token; None shows no log-probabilities."""
        self._includes_usage = wants_usage(body)

    def body(self) -> dict[str, Any]:
        choices = [self._choice(index, choice) for index, choice in enumerate(self.choices)]
        return {**self._head.members("chat.completion"), "choices": choices, "usage": self.usage()}

    def _choice(self, index: int, choice: FoldedChoice) -> Choice:
        calls: list[CalledTool] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in choice.calls
        ]
        return {
            "index": index,
            "message": {
                "role": "assistant",
                "content": choice.text,
                "gen_tokens": choice.ids if self._shows_ids else None,
                "reasoning_content": choice.thought or None,
                "tool_calls": calls or None,
            },
            "logprobs": self._logprobs(choice.tokens),
            "finish_reason": choice.reason,
            **stop_detail(choice.finished),
        }

    def chunks(self, event: GenerationEvent) -> Iterator[dict[str, Any]]:
        self.add(event)
        match event:
            case TextDelta() as delta if self._is_shown(delta):
                yield self._chunk(delta.index, delta.tokens, content=delta.text)
            case ReasoningDelta() as delta if self._is_shown(delta):
                yield self._chunk(delta.index, delta.tokens, thought=delta.text)
            case ToolCallDelta() as delta:
                call = {
                    "id": delta.id,
                    "type": "function",
                    "index": delta.call_index,
                    "function": {"name": delta.name, "arguments": delta.arguments},
                }
                yield self._chunk(delta.index, (), calls=(call,))
            case Finished() as finished:
                end = self.shown_end(finished)
                yield self._chunk(finished.index, end, content=texts_of(end), finished=finished)
            case Completed() if self._includes_usage:
                head = self._head.members("chat.completion.chunk")
                yield {**head, "choices": [], "usage": self.usage()}
            case _:
                pass

    def _is_shown(self, delta: TextDelta | ReasoningDelta) -> bool:
        shows_tokens = self._shows_ids or self._top is not None
        return bool(delta.text) or (shows_tokens and bool(delta.tokens))

    def _chunk(
        self,
        index: int,
        tokens: tuple[TokenInfo, ...],
        *,
        content: str = "",
        thought: str | None = None,
        calls: Iterable[dict[str, Any]] = (),
        finished: Finished | None = None,
    ) -> dict[str, Any]:
        choice = {
            "index": index,
            "delta": {
                "role": "assistant",
                "content": content,
                "reasoning_content": thought,
                "gen_tokens": ids_of(tokens) if self._shows_ids else None,
                "tool_calls": list(calls),
            },
            "logprobs": self._logprobs(tokens) if tokens else None,
            "finish_reason": None if finished is None else finished.reason,
            **stop_detail(finished),
        }
        return {**self._head.members("chat.completion.chunk"), "choices": [choice], "usage": None}

    def _logprobs(self, tokens: Iterable[TokenInfo]) -> Logprobs | None:
        return None if self._top is None else {"content": [_entry(token, self._top) for token in tokens]}


def _entry(token: TokenInfo, top: int) -> TokenLogprob:
    """As in LMDeploy, `token` is the vocabulary's spelling, and `bytes` are of that spelling."""
    others = [other for other in token.top if other.id != token.id][:top]
    return {
        "token": token.entry,
        "bytes": list(token.entry.encode()),
        "logprob": token.logprob or 0.0,
        "top_logprobs": [
            {"token": other.entry, "bytes": list(other.entry.encode()), "logprob": other.logprob}
            for other in others
        ],
    }
