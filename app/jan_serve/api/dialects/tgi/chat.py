"""TGI's chat: its request as core values, and the events of the answer in its forms. Pure."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Final

from jan_serve import __version__
from jan_serve.api.dialects.tgi import limits
from jan_serve.api.dialects.tgi.errors import ToolFailed, ValidationFailed
from jan_serve.api.dialects.tgi.render import TokenTexts, finish_reason
from jan_serve.api.dialects.tgi.tools import Called
from jan_serve.api.dialects.tgi.validation import WHOLE_CONTEXT
from jan_serve.api.dialects.tgi.wire_chat import (
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
    ToolCall,
    ToolCallPart,
    Usage,
)
from jan_serve.api.given import given_fields
from jan_serve.core import messages as core
from jan_serve.core.constraint import Constraint
from jan_serve.core.events import Completed, Finished, Started, TextDelta, TokenInfo
from jan_serve.core.events import Usage as CoreUsage
from jan_serve.core.request import GenerationRequest, TextPrompt
from jan_serve.core.sampling import SamplingParams, StopConditions
from jan_serve.generation.batch import PromptEvent

SERVED: Final = "tgi"
"""The name that stands for whatever model is served."""

_PENALTY_SHIFT: Final = 2.0
_ROLES: Final[dict[str, core.Role]] = {
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
    "function": "tool",
}
"""Any other is the user's."""


def chat_messages(body: ChatRequest, added: str) -> tuple[core.Message, ...]:
    """The turns as templates see them. added: text for the end of the last one. Raises ValidationFailed."""
    if not body.messages:
        raise ValidationFailed("`messages` cannot be empty")
    turns: list[tuple[core.Role, str]] = [
        (_ROLES.get(message.role, "user"), _text(message)) for message in body.messages
    ]
    role, text = turns[-1]
    turns[-1] = (role, text + added)
    return tuple(core.Message(role=role, content=text) for role, text in turns)


def _text(message: Message) -> str:
    if message.content is None:
        if not message.tool_calls:
            raise ValidationFailed("a message needs `content` or `tool_calls`")
        return json.dumps(message.tool_calls, ensure_ascii=False, separators=(",", ":"))
    if isinstance(message.content, str):
        return message.content
    return "".join(
        f"![]({chunk.image_url.url})" if isinstance(chunk, ImageChunk) else chunk.text
        for chunk in message.content
    )


def chat_generation(body: ChatRequest, text: str, constraint: Constraint | None) -> GenerationRequest:
    """text: the rendered prompt. Raises ValidationFailed."""
    _check(body)
    return GenerationRequest(
        prompt=TextPrompt(text),
        sampling=SamplingParams(
            temperature=1.0 if body.temperature is None else body.temperature,
            top_p=1.0 if body.top_p is None else body.top_p,
            repeat_penalty=1.0 if body.presence_penalty is None else body.presence_penalty + _PENALTY_SHIFT,
            repeat_last_n=WHOLE_CONTEXT,
            frequency_penalty=body.frequency_penalty or 0.0,
            seed=body.seed,
        ),
        stopping=StopConditions(
            max_tokens=body.max_tokens, stop=tuple(dict.fromkeys(body.stop or ())), include_stop=True
        ),
        constraint=constraint,
        logprobs=body.top_logprobs or 0,
        return_tokens=True,
        given=given_fields(body, presence_penalty="repeat_penalty"),
    )


def _check(body: ChatRequest) -> None:
    if body.temperature is not None and body.temperature < 0:
        raise ValidationFailed("`temperature` must be strictly positive")
    if body.presence_penalty is not None and not body.presence_penalty + _PENALTY_SHIFT > 0:
        raise ValidationFailed("`repetition_penalty` must be strictly positive")
    if body.frequency_penalty is not None and not -2.0 <= body.frequency_penalty <= 2.0:
        raise ValidationFailed("`frequency_penalty` must be >= -2.0 and <= 2.0")
    if body.top_p is not None and not 0 < body.top_p < 1:
        raise ValidationFailed("`top_p` must be > 0.0 and < 1.0")
    if body.max_tokens == 0:
        raise ValidationFailed("`max_new_tokens` must be strictly positive")
    stops = body.stop or []
    if len(stops) > limits.MAX_STOP_SEQUENCES:
        raise ValidationFailed(
            f"`stop` supports up to {limits.MAX_STOP_SEQUENCES} stop sequences. Given: {len(stops)}"
        )
    if "" in stops:
        raise ValidationFailed("`stop` sequences cannot be empty")
    if (body.top_logprobs or 0) > limits.MAX_TOP_N_TOKENS:
        raise ValidationFailed(
            f"`top_n_tokens` must be >= 0 and <= {limits.MAX_TOP_N_TOKENS}. Given: {body.top_logprobs}"
        )
    if body.tools is not None and body.response_format is not None:
        raise ToolFailed("Grammar and tools are mutually exclusive")


def finish_word(finished: Finished) -> str:
    """TGI's chat words."""
    reason = finish_reason(finished)
    return "stop" if reason == "eos_token" else reason


class Written:
    """An answer as it comes together."""

    def __init__(self) -> None:
        self.text = ""
        self.tokens: list[TokenInfo] = []
        self.finished: Finished | None = None
        self.usage = CoreUsage()

    def add(self, event: PromptEvent) -> None:
        """Take the next event."""
        match event.event:
            case TextDelta() as delta:
                self.text += delta.text
                self.tokens.extend(delta.tokens)
            case Finished() as finished:
                self.finished = finished
                if finished.end_token is not None:
                    self.tokens.append(finished.end_token)
            case Completed() as completed:
                self.usage = completed.usage
            case _:
                pass


class ChatRenderer:
    """The forms of one chat."""

    def __init__(self, body: ChatRequest, served: str) -> None:
        """served: the model's own name."""
        self._body = body
        self._model = body.model if body.model not in (None, "", SERVED) else served
        self._created = int(time.time())
        self._texts = TokenTexts()

    def whole(self, written: Written, call: Called | None, first: Written | None = None) -> ChatReply:
        """first: the pass in which the model declined all tools; TGI counts that one."""
        counted = first or written
        assert counted.finished is not None
        message: ReplyMessage = {"role": "assistant", "content": written.text}
        if call is not None:
            function: CalledFunction = {"description": None, "name": call.name, "arguments": call.arguments}
            called: ToolCall = {"id": "0", "type": "function", "function": function}
            message = {"role": "assistant", "tool_calls": [called]}
        choice: Choice = {
            "index": 0,
            "message": message,
            "logprobs": self._logprobs(written.tokens),
            "finish_reason": finish_word(counted.finished),
        }
        return {
            "object": "chat.completion",
            "id": "",
            "created": self._created,
            "model": self._model or "",
            "system_fingerprint": _fingerprint(),
            "choices": [choice],
            "usage": _usage(counted),
        }

    def text_chunks(self, event: PromptEvent, written: Written) -> Iterator[ChatChunk]:
        """The chunks of an event of a text; `written` has taken it already."""
        match event.event:
            case Started():
                yield self._chunk({"role": "assistant", "content": ""})
            case TextDelta() as delta if delta.text or delta.tokens:
                yield self._chunk(
                    {"role": "assistant", "content": delta.text}, logprobs=self._logprobs(list(delta.tokens))
                )
            case Finished() as finished:
                yield self._chunk({"role": "assistant", "content": ""}, finish=finish_word(finished))
            case Completed():
                yield from self._usage_chunk(written)
            case _:
                pass

    def call_chunks(self, call: Called, written: Written) -> Iterator[ChatChunk]:
        """A call: its name, its arguments, its end."""
        parts: tuple[tuple[str | None, str], ...] = ((call.name, ""), (None, call.arguments))
        for name, arguments in parts:
            part: ToolCallPart = {
                "index": 0,
                "id": "0",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            yield self._chunk({"role": "assistant", "tool_calls": [part]})
        # TGI sends no reason behind a call; agents wait for one.
        assert written.finished is not None
        yield self._chunk({"role": "assistant", "content": ""}, finish=finish_word(written.finished))
        yield from self._usage_chunk(written)

    def _usage_chunk(self, written: Written) -> Iterator[ChatChunk]:
        options = self._body.stream_options
        if options is not None and options.include_usage:
            yield {**self._shell(), "usage": _usage(written)}

    def _chunk(
        self, delta: Delta, *, logprobs: Logprobs | None = None, finish: str | None = None
    ) -> ChatChunk:
        chunk = self._shell()
        chunk["choices"] = [{"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]
        return chunk

    def _shell(self) -> ChatChunk:
        return {
            "object": "chat.completion.chunk",
            "id": "",
            "created": self._created,
            "model": self._model or "",
            "system_fingerprint": _fingerprint(),
            "choices": [],
            "usage": None,
        }

    def _logprobs(self, tokens: list[TokenInfo]) -> Logprobs | None:
        if not self._body.logprobs:
            return None
        return {
            "content": [
                {
                    "token": self._texts.token(info)["text"],
                    "logprob": info.logprob or 0.0,
                    "top_logprobs": [
                        {"token": entry.piece.decode("utf-8", "replace"), "logprob": entry.logprob}
                        for entry in info.top
                    ],
                }
                for info in tokens
            ]
        }


def _fingerprint() -> str:
    return f"{__version__}-native"


def _usage(written: Written) -> Usage:
    usage = written.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
    }
