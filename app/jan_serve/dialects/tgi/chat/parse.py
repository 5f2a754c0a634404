"""TGI's chat request as core messages and native parameters; with tools, the answer is JSON that names one. Pure."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Literal, NamedTuple, NotRequired, Self, cast

from pydantic import AliasChoices, Field, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from jan_serve.core import messages as core
from jan_serve.core.constraint import JsonSchemaConstraint
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, WireModel
from jan_serve.dialects.tgi.errors import ToolFailed, ValidationFailed
from jan_serve.dialects.tgi.generate.parse import (
    GrammarValue,
    Parameters,
    SampledRequest,
    SimpleToken,
    Unsigned,
    Usage,
    sampled_parameters,
)


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


_PENALTY_SHIFT: Final = 2.0


def chat_messages(body: ChatRequest, added: str) -> tuple[core.Message, ...]:
    """The messages for the template. added: text at the end of the last one. Raises ValidationFailed."""
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


def continues_answer(body: ChatRequest) -> bool:
    """Whether the last message begins the answer, which continues it."""
    return body.messages[-1].role == "assistant"


def chat_parameters(body: ChatRequest) -> Parameters:
    """Raises ToolFailed."""
    if body.tools is not None and body.response_format is not None:
        raise ToolFailed("Grammar and tools are mutually exclusive")
    shifted = None if body.presence_penalty is None else body.presence_penalty + _PENALTY_SHIFT
    return sampled_parameters(
        body, repetition_penalty=shifted, top_n_tokens=body.top_logprobs, grammar=body.response_format
    )


NO_TOOL: Final = "no_tool"
_DEFINITIONS: Final = ("$defs", "definitions")
_VALUES: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are no schemas."""

_NO_TOOL: Final = Tool(
    type="function",
    function=Function(
        name=NO_TOOL,
        description="Answer with a text, without any of the other functions",
        parameters={
            "type": "object",
            "properties": {"content": {"type": "string", "description": "The response content"}},
            "required": ["content"],
        },
    ),
)
_PROMPT: Final = (
    "\nAnswer with a JSON object that calls one of the functions with fitting arguments, in the form"
    ' {"name": function name, "parameters": its arguments}. Use no variables.\n'
)


def offered(body: ChatRequest) -> list[Tool]:
    """The tools that the answer may call, `no_tool` last if the model may decline; none: a text. Raises ToolFailed."""
    tools = body.tools or []
    choice = body.tool_choice
    if not tools or choice == "none":
        return []
    if choice in (None, "auto"):
        return [*tools, _NO_TOOL]
    if choice == "required":
        return tools
    name = choice.function.name if isinstance(choice, NamedTool) else choice
    named = [tool for tool in tools if tool.function.name == name]
    if not named:
        raise ToolFailed(f"Tool with name {name} not found")
    return named


def tool_constraint(tools: list[Tool]) -> JsonSchemaConstraint:
    """`{"function": {"_name": …, arguments…}}` for each tool."""
    return JsonSchemaConstraint(
        {
            "type": "object",
            "properties": {"function": {"anyOf": [_call_schema(*numbered) for numbered in enumerate(tools)]}},
            "required": ["function"],
            "additionalProperties": False,
            **_definitions(tools),
        }
    )


def _definitions(tools: list[Tool]) -> dict[str, Any]:
    """The targets of `#/$defs/…` references: the arguments' schemas are parts of one document now."""
    found: dict[str, Any] = {}
    for number, tool in enumerate(tools):
        for keyword in _DEFINITIONS:
            own: Any = tool.function.parameters.get(keyword)
            if isinstance(own, dict):
                named = cast(dict[str, Any], own).items()
                found.setdefault(keyword, {}).update(
                    {f"{number}.{name}": _numbered(schema, number) for name, schema in named}
                )
    return found


def _numbered(schema: Any, number: int) -> Any:
    """A schema whose references lead to the definitions of its tool: several tools may use one name."""
    if isinstance(schema, list):
        return [_numbered(item, number) for item in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _numbered_reference(value, number)
        if key == "$ref" and isinstance(value, str)
        else value
        if key in _VALUES
        else _numbered(value, number)
        for key, value in cast(dict[str, Any], schema).items()
    }


def _numbered_reference(reference: str, number: int) -> str:
    for keyword in _DEFINITIONS:
        start = f"#/{keyword}/"
        if reference.startswith(start):
            return f"{start}{number}.{reference.removeprefix(start)}"
    return reference


def _call_schema(number: int, tool: Tool) -> dict[str, Any]:
    function = tool.function
    properties: Any = _numbered(function.parameters.get("properties"), number)
    required: Any = function.parameters.get("required")
    own = cast(dict[str, Any], properties) if isinstance(properties, dict) else {}
    needed = cast(list[Any], required) if isinstance(required, list) else []
    return {
        "type": "object",
        "properties": {"_name": {"const": function.name}, **own},
        "required": ["_name", *needed],
        "additionalProperties": False,
    }


def tool_prompt(body: ChatRequest, tools: list[Tool], *, shown: bool) -> str:
    """The text to add to the last message. shown: the template writes the tools itself."""
    listed = ""
    if not shown:
        fields = ("description", "name", "parameters")
        values = [
            {"type": tool.type, "function": {name: getattr(tool.function, name) for name in fields}}
            for tool in tools
        ]
        listed = json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n"
    return f"\n---\n{listed}{body.tool_prompt or _PROMPT}"


def core_tools(tools: list[Tool]) -> tuple[core.Tool, ...]:
    functions = [tool.function for tool in tools]
    return tuple(
        core.Tool(name=each.name, description=each.description, parameters=each.parameters)
        for each in functions
    )


class Called(NamedTuple):
    """arguments: compact JSON text."""

    name: str
    arguments: str


def read_call(text: str) -> Called:
    """Raises ToolFailed if a limit cut the text off."""
    try:
        function: Any = json.loads(text)["function"]
        name: str = function.pop("_name")
    except (ValueError, KeyError, TypeError) as error:
        raise ToolFailed(f"Failed to parse generated text: {error}") from None
    return Called(name, json.dumps(function, ensure_ascii=False, separators=(",", ":")))
