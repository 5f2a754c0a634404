"""Events of an answer in Jan's chat form, whole and as chunks. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from jan_serve.api.dialects.jan.logprobs import chat_logprobs
from jan_serve.api.dialects.jan.reply_head import ReplyHead, finish_word, usage_of
from jan_serve.api.dialects.jan.wire_chat import (
    ChatCompletionChunk,
    CreateChatCompletionResponse,
    Delta,
    ResponseChoice,
)
from jan_serve.core.events import Completed, Finished, Started, TextDelta, TokenInfo, Usage
from jan_serve.generation.batch import PromptEvent


class ChatAnswer:
    """The whole answer."""

    def __init__(self, head: ReplyHead, *, logprobs: bool) -> None:
        self._head = head
        self._logprobs = logprobs
        self._texts: defaultdict[int, list[str]] = defaultdict(list)
        self._tokens: defaultdict[int, list[TokenInfo]] = defaultdict(list)
        self._finished: dict[int, Finished] = {}
        self._usage = Usage()

    def add(self, event: PromptEvent) -> None:
        """Take the next event."""
        match event.event:
            case Started() as started:
                self._head.served_by(started.model)
            case TextDelta() as delta:
                self._texts[delta.index].append(delta.text)
                self._tokens[delta.index].extend(delta.tokens)
            case Finished() as finished:
                self._finished[finished.index] = finished
            case Completed() as completed:
                self._usage = completed.usage
            case _:
                pass

    def body(self) -> CreateChatCompletionResponse:
        """The response."""
        return {
            "id": self._head.id,
            "object": "chat.completion",
            "created": self._head.created,
            "model": self._head.model,
            "choices": [self._choice(index) for index in sorted(self._finished)],
            "usage": usage_of(self._usage),
        }

    def _choice(self, index: int) -> ResponseChoice:
        return {
            "index": index,
            "message": {"role": "assistant", "content": "".join(self._texts[index])},
            "logprobs": chat_logprobs(self._tokens[index]) if self._logprobs else None,
            "finish_reason": finish_word(self._finished[index].reason),
        }


class ChatChunks:
    """The stream: the role, the text, the reason; then the usage if it was asked for."""

    def __init__(self, head: ReplyHead, *, n: int, logprobs: bool, include_usage: bool) -> None:
        self._head = head
        self._n = n
        self._logprobs = logprobs
        self._include_usage = include_usage

    def chunks(self, event: PromptEvent) -> Iterator[ChatCompletionChunk]:
        """The chunks of one event."""
        match event.event:
            case Started() as started:
                self._head.served_by(started.model)
                for index in range(self._n):
                    yield self._chunk(index, {"role": "assistant"})
            case TextDelta() as delta if delta.text or (self._logprobs and delta.tokens):
                yield self._chunk(delta.index, {"content": delta.text}, tokens=delta.tokens)
            case Finished() as finished:
                yield self._chunk(finished.index, {}, finish_reason=finish_word(finished.reason))
            case Completed() as completed if self._include_usage:
                yield {**self._shell(), "choices": [], "usage": usage_of(completed.usage)}
            case _:
                pass

    def _chunk(
        self,
        index: int,
        delta: Delta,
        *,
        tokens: tuple[TokenInfo, ...] = (),
        finish_reason: str | None = None,
    ) -> ChatCompletionChunk:
        chunk = self._shell()
        chunk["choices"] = [
            {
                "index": index,
                "delta": delta,
                "logprobs": chat_logprobs(tokens) if self._logprobs and tokens else None,
                "finish_reason": finish_reason,
            }
        ]
        return chunk

    def _shell(self) -> ChatCompletionChunk:
        shell: ChatCompletionChunk = {
            "id": self._head.id,
            "model": self._head.model,
            "created": self._head.created,
            "object": "chat.completion.chunk",
            "choices": [],
        }
        if self._include_usage:
            shell["usage"] = None
        return shell
