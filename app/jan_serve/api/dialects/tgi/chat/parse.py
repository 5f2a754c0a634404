"""TGI's chat: its request as native parameters, and the events of the answer in its forms. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from jan_serve.api.dialects.tgi.chat.tools import Called
from jan_serve.api.dialects.tgi.chat.wire import (
    CalledFunction,
    ChatChunk,
    ChatReply,
    ChatRequest,
    Choice,
    Delta,
    ImageChunk,
    Logprobs,
    Message,
    ReplyMessage,
    TokenLogprob,
    ToolCall,
    Usage,
)
from jan_serve.api.dialects.tgi.errors import ToolFailed, ValidationFailed
from jan_serve.api.dialects.tgi.generate.render import Ending, Generated, TokenHold, TokenTexts, logprob_of
from jan_serve.api.dialects.tgi.generate.wire import Parameters
from jan_serve.api.dialects.tgi.head import FINGERPRINT, ReplyHead
from jan_serve.core import messages as core
from jan_serve.core.events import Completed, Finished, Started, TextDelta, Timings, TokenInfo
from jan_serve.generation.batch import PromptEvent

_PENALTY_SHIFT: Final = 2.0


def chat_messages(body: ChatRequest, added: str) -> tuple[core.Message, ...]:
    """The turns as templates see them. added: text for the end of the last one. Raises ValidationFailed."""
    if not body.messages:
        raise ValidationFailed("`messages` cannot be empty")
    texts = [_text(message) for message in body.messages]
    texts[-1] += added
    return tuple(
        core.Message(role="system" if message.role == "developer" else message.role, content=text)
        for message, text in zip(body.messages, texts, strict=True)
    )


def _text(message: Message) -> str:
    if message.content is None:
        return json.dumps(message.tool_calls, ensure_ascii=False, separators=(",", ":"))
    if isinstance(message.content, str):
        return message.content
    return "".join(
        f"![]({chunk.image_url.url})" if isinstance(chunk, ImageChunk) else chunk.text
        for chunk in message.content
    )


def begun_answer(body: ChatRequest) -> bool:
    """Whether the last message is the beginning of the answer, which goes on without a break."""
    return body.messages[-1].role == "assistant"


def chat_parameters(body: ChatRequest) -> Parameters:
    """A temperature of 0 is greedy; without one, the text is sampled. Raises ToolFailed."""
    if body.tools is not None and body.response_format is not None:
        raise ToolFailed("Grammar and tools are mutually exclusive")
    greedy = body.temperature == 0
    shifted = None if body.presence_penalty is None else body.presence_penalty + _PENALTY_SHIFT
    return Parameters(
        temperature=None if greedy else body.temperature,
        do_sample=not greedy,
        top_p=None if greedy else body.top_p,
        repetition_penalty=shifted,
        frequency_penalty=body.frequency_penalty,
        max_new_tokens=body.max_tokens,
        stop=body.stop or [],
        seed=body.seed,
        top_n_tokens=body.top_logprobs,
        grammar=body.response_format,
        details=True,
    )


def finish_word(reason: str) -> str:
    """TGI's chat words."""
    return "stop" if reason == "eos_token" else reason


class Logprobed:
    """The log-probabilities of tokens in the chat's form, where they were asked for."""

    def __init__(self, body: ChatRequest) -> None:
        self._wanted = bool(body.logprobs)

    def of(self, entries: list[tuple[TokenInfo, str]]) -> Logprobs | None:
        """entries: tokens and their texts."""
        return {"content": [self._entry(info, text) for info, text in entries]} if self._wanted else None

    @staticmethod
    def _entry(info: TokenInfo, text: str) -> TokenLogprob:
        return {
            "token": text,
            "logprob": logprob_of(info),
            "top_logprobs": [
                {"token": entry.piece.decode("utf-8", "replace"), "logprob": entry.logprob}
                for entry in info.top
            ],
        }


class Written:
    """An answer as it comes together."""

    def __init__(self, ending: Ending) -> None:
        self._ending = ending
        self.generated = Generated()
        self.prompt_tokens = 0
        self.timings = Timings()

    def add(self, event: PromptEvent) -> None:
        """Take the next event."""
        match event.event:
            case Started() as started:
                self.prompt_tokens = started.prompt_tokens
            case (TextDelta() | Finished()) as choice:
                self.generated.add(choice, self._ending)
            case Completed() as completed:
                self.timings = completed.timings
            case _:
                pass

    @property
    def text(self) -> str:
        """All of it."""
        return self.generated.text

    @property
    def usage(self) -> Usage:
        """The token that ended the text counts too."""
        return usage_of(self.prompt_tokens, len(self.generated.tokens))


def usage_of(prompt_tokens: int, completion_tokens: int) -> Usage:
    """Counts."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def chat_reply(
    body: ChatRequest, head: ReplyHead, written: Written, call: Called | None, first: Written | None = None
) -> ChatReply:
    """The whole reply. first: the pass in which the model declined all tools; TGI tells that one's counts."""
    counted = first or written
    message: ReplyMessage = {"role": "assistant", "content": written.text}
    if call is not None:
        function: CalledFunction = {"description": None, "name": call.name, "arguments": call.arguments}
        called: ToolCall = {"id": "0", "type": "function", "function": function}
        message = {"role": "assistant", "tool_calls": [called]}
    texts = TokenTexts()
    choice: Choice = {
        "index": 0,
        "message": message,
        "logprobs": Logprobed(body).of([(info, texts.text(info)) for info in written.generated.tokens]),
        "finish_reason": finish_word(counted.generated.reason),
    }
    return {
        "object": "chat.completion",
        "id": "",
        "created": head.created,
        "model": head.model,
        "system_fingerprint": FINGERPRINT,
        "choices": [choice],
        "usage": counted.usage,
    }


class ChatChunks:
    """The stream of a text: one chunk a token, of which the last has the reason of the end."""

    def __init__(self, body: ChatRequest, head: ReplyHead, ending: Ending) -> None:
        self._body = body
        self._head = head
        self._hold = TokenHold(ending)
        self._texts = TokenTexts()
        self._logprobs = Logprobed(body)
        self._prompt_tokens = 0

    def chunks(self, event: PromptEvent) -> Iterator[ChatChunk]:
        """The chunks of one event."""
        match event.event:
            case Started() as started:
                self._prompt_tokens = started.prompt_tokens
            case TextDelta() as delta:
                yield from (self._token(info) for info in self._hold.tokens(delta))
            case Finished() as finished:
                before, last, reason = self._hold.rest(finished)
                yield from (self._token(info) for info in before)
                if last is not None:
                    yield self._token(last, finish_word(reason))
            case Completed():
                yield from usage_chunk(self._body, self._head, self._prompt_tokens, self._hold.count)
            case _:
                pass

    def _token(self, info: TokenInfo, finish: str | None = None) -> ChatChunk:
        text = self._texts.text(info)
        delta: Delta = {"role": "assistant", "content": "" if info.special else text}
        return chunk_of(self._head, delta, logprobs=self._logprobs.of([(info, text)]), finish=finish)


def chunk_of(
    head: ReplyHead, delta: Delta, *, logprobs: Logprobs | None = None, finish: str | None = None
) -> ChatChunk:
    """An event with news of the answer."""
    chunk = head.chunk()
    chunk["choices"] = [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]
    return chunk


def usage_chunk(
    body: ChatRequest, head: ReplyHead, prompt_tokens: int, completion_tokens: int
) -> Iterator[ChatChunk]:
    """The event with the counts, where it was asked for."""
    if body.stream_options.include_usage:
        chunk = head.chunk()
        chunk["usage"] = usage_of(prompt_tokens, completion_tokens)
        yield chunk
