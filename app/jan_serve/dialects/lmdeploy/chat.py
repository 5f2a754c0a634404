"""LMDeploy's /v1/chat/completions: types, the GenerationRequest, and the answer, whole and as chunks. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from jan_serve.core import messages as core
from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    TextDelta,
    TokenInfo,
    ToolCallDelta,
)
from jan_serve.core.request import ChatPrompt, GenerationRequest, Prompt, TextPrompt
from jan_serve.dialects.lmdeploy.common import (
    Answer,
    ReplyFacts,
    SamplingFields,
    Usage,
    candidates,
    choice_count,
    ids_of,
    logit_bias,
    request_of,
    stop_conditions,
    texts_of,
    token_limit,
    wants_usage,
)
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import FoldedChoice, StopDetail, stop_detail
from jan_serve.dialects.shared.thinking_fields import (
    EarlierThought,
    ThinkingFields,
    earlier_thought,
    thinking_budget,
    thinking_switch,
)
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, Int, LaxModel
from jan_serve.errors import InvalidRequest, UnsupportedContent
from jan_serve.http.errors import invalid_value


class TextPart(LaxModel):
    type: Literal["text"]
    text: str


class ImageUrl(LaxModel):
    url: str


class ImagePart(LaxModel):
    """An image: a data URL, base64, or a URL of a host that the server may fetch from."""

    type: Literal["image_url"]
    image_url: str | ImageUrl


class FunctionCall(LaxModel):
    """A call by the model; arguments are JSON text or an object."""

    name: str
    arguments: str | dict[str, Any]


class ToolCall(LaxModel):
    """A call with the id that its result refers to."""

    id: str = ""
    function: FunctionCall


class Message(EarlierThought, LaxModel):
    """A message. content: text, or a list of parts, each validated by the parser."""

    role: str
    content: str | Annotated[list[dict[str, Any]], AtMost(limits.MAX_PARTS, "messages.content")] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class Function(LaxModel):
    """A function that the model may call; parameters is a JSON Schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class Tool(LaxModel):
    type: str = "function"
    function: Function


class ToolName(LaxModel):
    name: str


class ToolChoice(LaxModel):
    type: Literal["function"] = "function"
    function: ToolName


class ChatRequest(ThinkingFields, SamplingFields):
    """A conversation to answer. `messages` as a text is a prompt without template."""

    messages: Annotated[str | list[dict[str, Any]], AtMost(limits.MAX_MESSAGES, "messages")]
    max_tokens: Int | None = None
    min_new_tokens: Int | None = None
    logprobs: bool | None = False
    top_logprobs: Int | None = None
    logit_bias: Annotated[dict[str, float] | None, AtMost(limits.MAX_LOGIT_BIAS, "logit_bias")] = None
    tools: Annotated[list[Tool], FirstError(), AtMost(limits.MAX_TOOLS, "tools")] | None = None
    tool_choice: ToolChoice | Literal["auto", "required", "none"] | None = "auto"
    do_preprocess: bool | None = True
    enable_thinking: Annotated[
        bool | None,
        Field(
            description="Passed to the template unless chat_template_kwargs has it; `false` also leaves thoughts in the"
            " text, with their markers."
        ),
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, Any] | None, AtMost(limits.MAX_TEMPLATE_KWARGS, "chat_template_kwargs")
    ] = None
    reasoning_effort: Literal["low", "medium", "high"] | None = None


class TopLogprob(TypedDict):
    token: str
    bytes: list[int]
    logprob: float


class TokenLogprob(TypedDict):
    """A token and its alternatives, without itself."""

    token: str
    bytes: list[int]
    logprob: float
    top_logprobs: list[TopLogprob]


class Logprobs(TypedDict):
    content: list[TokenLogprob]


class CalledFunction(TypedDict):
    """arguments: JSON text."""

    name: str
    arguments: str


class CalledTool(TypedDict):
    """A call. id: the result must refer to it."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class ReplyMessage(TypedDict):
    role: Literal["assistant"]
    content: str
    gen_tokens: list[int] | None
    reasoning_content: str | None
    tool_calls: list[CalledTool] | None


class Choice(StopDetail):
    index: int
    message: ReplyMessage
    logprobs: Logprobs | None
    finish_reason: str


class ChatReply(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


_ROLES: Final[dict[str, core.Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "function",
}
_RESULTS: Final = ("tool", "function")

_MESSAGE: Final = TypeAdapter(Message)
_PART: Final[TypeAdapter[TextPart | ImagePart]] = TypeAdapter(TextPart | ImagePart)


def chat_request(body: ChatRequest) -> GenerationRequest:
    logprobs, n = _logprobs(body), choice_count(body.n)
    limit = token_limit(body.max_completion_tokens, body.max_tokens)
    return request_of(
        body,
        _prompt(body),
        stop_conditions(body, max_tokens=limit, min_tokens=body.min_new_tokens),
        logit_bias=logit_bias(body.logit_bias),
        model=body.model,
        n=n,
        best_of=n,
        logprobs=logprobs,
        vocabulary_entries=logprobs is not None,
    )


def _logprobs(body: ChatRequest) -> int | None:
    """Both fields must ask. One more than requested, because the chosen token is left out of its own list."""
    requested = body.top_logprobs or 0
    if requested < 0 or (requested and not body.logprobs):
        raise InvalidRequest(
            f"Invalid logprobs({body.logprobs})/top_logprobs({str(requested)[:20]}) requested when logprobs_mode is"
            " enabled in engine configuration.",
            param="top_logprobs",
        )
    count = candidates(requested, "top_logprobs")
    return None if count is None else count + 1


def _prompt(body: ChatRequest) -> Prompt:
    if isinstance(body.messages, str):
        return TextPrompt(body.messages)
    if body.do_preprocess is False:
        raise InvalidRequest(
            "do_preprocess: without the template, messages must be one text", param="do_preprocess"
        )
    tools, choice = _tools(body)
    kwargs = _template_kwargs(body)
    budget = thinking_budget(body)
    return ChatPrompt(
        messages=tuple(_message(item, index) for index, item in enumerate(body.messages)),
        tools=tools,
        tool_choice=choice,
        split_thoughts=kwargs.get("enable_thinking") is not False,
        reasoning_budget=budget if budget is not None and budget >= 0 else None,
        template_kwargs=kwargs,
    )


def _template_kwargs(body: ChatRequest) -> dict[str, Any]:
    """chat_template_kwargs takes precedence, except for a null enable_thinking in it."""
    kwargs = dict(body.chat_template_kwargs or {})
    switch = thinking_switch(body)
    if switch is not None and kwargs.get("enable_thinking") is None:
        kwargs["enable_thinking"] = switch
    if body.reasoning_effort is not None:
        kwargs.setdefault("reasoning_effort", body.reasoning_effort)
    return kwargs


def _tools(body: ChatRequest) -> tuple[tuple[core.Tool, ...], core.ToolChoice]:
    tools = tuple(
        core.Tool(
            name=tool.function.name,
            description=tool.function.description,
            parameters=tool.function.parameters or core.NO_ARGUMENTS,
        )
        for tool in body.tools or ()
    )
    match body.tool_choice:
        case None:
            return tools, core.ToolChoice("auto")
        case ToolChoice() as choice:
            return tools, core.ToolChoice("named", choice.function.name)
        case mode:
            return tools, core.ToolChoice(mode if tools or mode == "required" else "auto")


def _message(item: dict[str, Any], index: int) -> core.Message:
    try:
        message = _MESSAGE.validate_python(item)
    except ValidationError as error:
        raise invalid_value(f"messages[{index}]", error.errors(), item) from None
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidRequest(
            f"messages[{index}].role: {message.role[:40]!r} is not one of {', '.join(_ROLES)}",
            param="messages",
        )
    return core.Message(
        role=role,
        content=_content(message.content, index, core.IMAGE_NOTE if role in _RESULTS else None),
        name=message.name,
        tool_calls=tuple(_call(call) for call in message.tool_calls or ()),
        tool_call_id=message.tool_call_id,
        reasoning_content=earlier_thought(message),
    )


def _content(
    content: str | list[dict[str, Any]] | None, index: int, note: str | None
) -> str | tuple[core.ContentPart, ...] | None:
    if content is None or isinstance(content, str):
        return content
    return tuple(
        _part(part, f"messages[{index}].content[{part_index}]", note)
        for part_index, part in enumerate(content)
    )


def _part(part: dict[str, Any], field: str, note: str | None) -> core.ContentPart:
    kind: object = part.get("type")
    if isinstance(kind, str) and kind not in ("text", "image_url"):
        raise UnsupportedContent(f"{field}: content of type {kind[:40]!r} is not supported", param="messages")
    try:
        known = _PART.validate_python(part)
    except ValidationError as error:
        raise invalid_value(field, error.errors(), part) from None
    if isinstance(known, TextPart):
        return core.TextPart(known.text)
    url = known.image_url if isinstance(known.image_url, str) else known.image_url.url
    return core.ImagePart(url, f"{field}.image_url", note)


def _call(call: ToolCall) -> core.ToolCall:
    arguments = call.function.arguments
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return core.ToolCall(call.id, core.FunctionCall(call.function.name, arguments))


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
