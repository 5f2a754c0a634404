"""Wire types of TGI's /v1/chat/completions. They never leave this folder."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, Self, cast

from pydantic import AliasChoices, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, WireModel
from jan_serve.dialects.tgi.generate.wire import GrammarValue, SampledRequest, SimpleToken, Unsigned, Usage


class Url(WireModel):
    url: str


class TextChunk(WireModel):
    type: Literal["text"]
    text: str


class ImageChunk(WireModel):
    """An image, which becomes its address in Markdown."""

    type: Literal["image_url"]
    image_url: Url


Chunk = Annotated[TextChunk | ImageChunk, Field(discriminator="type")]


class Message(WireModel):
    """A turn, by any role."""

    role: str
    content: str | Annotated[list[Chunk], FirstError()] | None = None
    tool_calls: list[dict[str, Any]] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.content is None and self.tool_calls is None:
            raise PydanticCustomError(
                "untagged", "data did not match any variant of untagged enum MessageBody"
            )
        return self


class Function(WireModel):
    """A function that may be called."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] = Field(validation_alias=AliasChoices("parameters", "arguments"))


class Tool(WireModel):
    """A function as a tool."""

    type: str
    function: Function


class FunctionName(WireModel):
    name: str


class NamedTool(WireModel):
    type: Literal["function"] = "function"
    function: FunctionName


class StreamOptions(WireModel):
    """Extra events of a stream."""

    include_usage: bool = False


class ChatRequest(SampledRequest):
    messages: Annotated[list[Message], FirstError(), AtMost(limits.MAX_MESSAGES, "messages")]
    max_tokens: Unsigned | None = Field(
        default=None, validation_alias=AliasChoices("max_tokens", "max_completion_tokens")
    )
    presence_penalty: float | None = None
    n: Annotated[Unsigned | None, Field(description="Not used: there is one answer.")] = None
    logprobs: bool | None = None
    top_logprobs: Unsigned | None = None
    logit_bias: list[float] | None = None
    stream_options: StreamOptions = Field(default_factory=StreamOptions)
    tools: Annotated[list[Tool], FirstError(), AtMost(limits.MAX_TOOLS, "tools")] | None = None
    tool_choice: str | NamedTool | None = None
    tool_prompt: str | None = None
    response_format: GrammarValue | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_limit(cls, values: Any) -> Any:
        """Two names of one field are the same field twice."""
        if isinstance(values, dict) and "max_tokens" in values and "max_completion_tokens" in values:
            raise PydanticCustomError("duplicate_field", "duplicate field `max_tokens`")
        return cast(Any, values)


class ChatTokenized(TypedDict):
    """A chat as text, and its tokens."""

    tokenize_response: list[SimpleToken]
    templated_text: str


class TopLogprob(TypedDict):
    token: str
    logprob: float


class TokenLogprob(TypedDict):
    """A token and its competitors."""

    token: str
    logprob: float
    top_logprobs: list[TopLogprob]


class Logprobs(TypedDict):
    """Log-probabilities of an answer, or of a part of a stream."""

    content: list[TokenLogprob]


class CalledFunction(TypedDict):
    """arguments: compact JSON text."""

    description: None
    name: str
    arguments: str


class ToolCall(TypedDict):
    id: str
    type: str
    function: CalledFunction


class ReplyMessage(TypedDict):
    """The answer: text, or a call."""

    role: str
    content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall]]


class Choice(TypedDict):
    index: int
    message: ReplyMessage
    logprobs: Logprobs | None
    finish_reason: str


class ChatReply(TypedDict):
    object: str
    id: str
    created: int
    model: str
    system_fingerprint: str
    choices: list[Choice]
    usage: Usage
