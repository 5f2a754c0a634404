"""Wire types of LMDeploy's /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.lmdeploy.common import SamplingFields, Usage
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import StopDetail
from jan_serve.dialects.shared.thinking_fields import EarlierThought, ThinkingFields
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, Int, LaxModel


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
