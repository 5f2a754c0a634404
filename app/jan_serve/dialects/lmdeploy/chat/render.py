"""Renders an answer of /v1/chat/completions, whole and as chunks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    TextDelta,
    TokenInfo,
    ToolCallDelta,
)
from jan_serve.dialects.lmdeploy.chat.wire import (
    CalledTool,
    ChatChunk,
    ChatReply,
    Delta,
    Logprobs,
    TokenLogprob,
    ToolCallPart,
    TopLogprob,
)
from jan_serve.dialects.lmdeploy.chat.wire import Choice as WireChoice
from jan_serve.dialects.lmdeploy.common import Answer, ReplyFacts, Usage, ids_of, texts_of
from jan_serve.dialects.shared.answers import FoldedChoice, stop_detail


class ChatForm(msgspec.Struct, frozen=True, kw_only=True):
    """top: candidates besides each token; None shows no log-probabilities."""

    choices: int = 1
    include_stop: bool = False
    token_ids: bool = False
    top: int | None = None
    include_usage: bool = False

    def logprobs(self, tokens: Iterable[TokenInfo]) -> Logprobs | None:
        if self.top is None:
            return None
        return {"content": [self._token(token, self.top) for token in tokens]}

    def _token(self, token: TokenInfo, top: int) -> TokenLogprob:
        """As in LMDeploy, `token` is the vocabulary's spelling, and `bytes` are of that spelling."""
        others = [other for other in token.top if other.id != token.id][:top]
        candidates: list[TopLogprob] = [
            {"token": other.entry, "bytes": list(other.entry.encode()), "logprob": other.logprob}
            for other in others
        ]
        return {
            "token": token.entry,
            "bytes": list(token.entry.encode()),
            "logprob": token.logprob or 0.0,
            "top_logprobs": candidates,
        }


class ChatRenderer(Answer):
    """A stream has thoughts, text and calls, the finish reason without text, then the usage on request."""

    def __init__(self, head: ReplyFacts, form: ChatForm) -> None:
        super().__init__(form.choices, include_stop=form.include_stop)
        self._head = head
        self._form = form

    def body(self) -> ChatReply:
        return {
            "id": self._head.id,
            "object": "chat.completion",
            "created": self._head.created,
            "model": self._head.model,
            "choices": [self._choice(index, choice) for index, choice in enumerate(self.choices)],
            "usage": self.usage(),
        }

    def _choice(self, index: int, choice: FoldedChoice) -> WireChoice:
        calls: list[CalledTool] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in choice.calls
        ]
        return {
            "index": index,
            "message": {
                "role": "assistant",
                "content": choice.text,
                "gen_tokens": choice.ids if self._form.token_ids else None,
                "reasoning_content": choice.thought or None,
                "tool_calls": calls or None,
            },
            "logprobs": self._form.logprobs(choice.tokens),
            "finish_reason": choice.reason,
            **stop_detail(choice.finished),
        }

    def chunks(self, event: GenerationEvent) -> Iterator[ChatChunk]:
        self.add(event)
        match event:
            case TextDelta() as delta if self._is_shown(delta):
                yield self._chunk(delta.index, self._delta(delta.tokens, content=delta.text), delta.tokens)
            case ReasoningDelta() as delta if self._is_shown(delta):
                yield self._chunk(delta.index, self._delta(delta.tokens, thought=delta.text), delta.tokens)
            case ToolCallDelta() as delta:
                yield self._chunk(delta.index, self._delta((), calls=[_part(delta)]))
            case Finished() as finished:
                end = self.shown_end(finished)
                yield self._chunk(finished.index, self._delta(end, content=texts_of(end)), end, finished)
            case Completed() if self._form.include_usage:
                yield self._shell(self.usage())
            case _:
                pass

    def _is_shown(self, delta: TextDelta | ReasoningDelta) -> bool:
        shows_tokens = self._form.token_ids or self._form.top is not None
        return bool(delta.text) or (shows_tokens and bool(delta.tokens))

    def _delta(
        self,
        tokens: tuple[TokenInfo, ...],
        *,
        content: str = "",
        thought: str | None = None,
        calls: list[ToolCallPart] | None = None,
    ) -> Delta:
        return {
            "role": "assistant",
            "content": content,
            "reasoning_content": thought,
            "gen_tokens": ids_of(tokens) if self._form.token_ids else None,
            "tool_calls": calls or [],
        }

    def _chunk(
        self, index: int, delta: Delta, tokens: tuple[TokenInfo, ...] = (), finished: Finished | None = None
    ) -> ChatChunk:
        chunk = self._shell(None)
        chunk["choices"] = [
            {
                "index": index,
                "delta": delta,
                "logprobs": self._form.logprobs(tokens) if tokens else None,
                "finish_reason": None if finished is None else finished.reason,
                **stop_detail(finished),
            }
        ]
        return chunk

    def _shell(self, usage: Usage | None) -> ChatChunk:
        return {
            "id": self._head.id,
            "object": "chat.completion.chunk",
            "created": self._head.created,
            "model": self._head.model,
            "choices": [],
            "usage": usage,
        }


def _part(delta: ToolCallDelta) -> ToolCallPart:
    return {
        "id": delta.id,
        "type": "function",
        "index": delta.call_index,
        "function": {"name": delta.name, "arguments": delta.arguments},
    }
