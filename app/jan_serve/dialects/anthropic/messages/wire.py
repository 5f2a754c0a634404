"""Wire types of /v1/messages and /v1/messages/count_tokens: requests with their blocks and tools, and answers."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired, cast

from pydantic import Discriminator, Field, Tag
from typing_extensions import TypedDict

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, Between, FirstError, Int, Strings, WireModel


class TextBlock(WireModel):
    type: Literal["text"]
    text: str


class Base64Source(WireModel):
    type: Literal["base64"]
    media_type: str
    data: str


class UrlSource(WireModel):
    type: Literal["url"]
    url: str


class FileSource(WireModel):
    """A file of Anthropic's Files API, which this server lacks."""

    type: Literal["file"]
    file_id: str


class ImageBlock(WireModel):
    type: Literal["image"]
    source: Annotated[Base64Source | UrlSource | FileSource, Discriminator("type")]


class PlainTextSource(WireModel):
    type: Literal["text"]
    data: str


class ContentSource(WireModel):
    """content: text, or blocks of text and images."""

    type: Literal["content"]
    content: (
        str
        | Annotated[
            list[Annotated[TextBlock | ImageBlock, Discriminator("type")]],
            FirstError(),
            AtMost(limits.MAX_PARTS, "messages.content.source.content"),
        ]
    )


class DocumentBlock(WireModel):
    """A document: texts, and PDFs in base64."""

    type: Literal["document"]
    source: Annotated[
        Base64Source | UrlSource | FileSource | PlainTextSource | ContentSource, Discriminator("type")
    ]
    title: str | None = None
    context: str | None = None


class SearchResultBlock(WireModel):
    """A passage that the client found."""

    type: Literal["search_result"]
    source: str
    title: str
    content: Annotated[list[TextBlock], FirstError(), AtMost(limits.MAX_PARTS, "messages.content.content")]


class ThinkingBlock(WireModel):
    """A thought of the model. signature: of any server."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(WireModel):
    """A thought that only Anthropic can read: left out."""

    type: Literal["redacted_thinking"]


class ToolUseBlock(WireModel):
    """A call by the model."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class OtherBlock(WireModel):
    """A block of a tool or service that this server lacks: left out."""

    type: str


def tag_of(value: object, known: frozenset[str]) -> str | None:
    """The member `type` if it is among `known`, else `other`; None if it is no text."""
    if isinstance(value, dict):
        kind: object = cast(dict[str, Any], value).get("type")
    else:
        kind = getattr(value, "type", None)
    if not isinstance(kind, str):
        return None
    return kind if kind in known else "other"


_INNER_TAGS: Final = frozenset({"text", "image", "document", "search_result"})
_TAGS: Final = _INNER_TAGS | {"thinking", "redacted_thinking", "tool_use", "tool_result"}


def _discriminator(known: frozenset[str]) -> Discriminator:
    return Discriminator(
        lambda value: tag_of(value, known),
        custom_error_type="no_type",
        custom_error_message="a block needs a type, a text",
    )


_Inner = (
    Annotated[TextBlock, Tag("text")]
    | Annotated[ImageBlock, Tag("image")]
    | Annotated[DocumentBlock, Tag("document")]
    | Annotated[SearchResultBlock, Tag("search_result")]
    | Annotated[OtherBlock, Tag("other")]
)
ResultBlock = Annotated[_Inner, _discriminator(_INNER_TAGS)]


class ToolResultBlock(WireModel):
    """The result of a call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: (
        str
        | Annotated[list[ResultBlock], FirstError(), AtMost(limits.MAX_PARTS, "messages.content.content")]
        | None
    ) = None
    is_error: bool | None = None


Block = Annotated[
    _Inner
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[RedactedThinkingBlock, Tag("redacted_thinking")]
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Annotated[ToolResultBlock, Tag("tool_result")],
    _discriminator(_TAGS),
]
Content = str | Annotated[list[Block], FirstError(), AtMost(limits.MAX_PARTS, "messages.content")]


class ClientTool(WireModel):
    """A tool of the client. input_schema: a JSON Schema."""

    type: Literal["custom"] | None = None
    name: str
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


class AnthropicTool(WireModel):
    """A tool that Anthropic runs or defines, such as `web_search_20250305`: left out."""

    type: str
    name: str | None = None


# A tool without a type is the client's.
Tool = Annotated[
    Annotated[ClientTool, Tag("custom")] | Annotated[AnthropicTool, Tag("other")],
    Discriminator(lambda value: tag_of(value, frozenset({"custom"})) or "custom"),
]
Tools = Annotated[list[Tool], FirstError(), AtMost(limits.MAX_TOOLS, "tools")]


class ToolMode(WireModel):
    """auto: the model decides. any: it calls one of the tools. none: it calls none."""

    type: Literal["auto", "any", "none"]
    disable_parallel_tool_use: bool | None = None


class ToolByName(WireModel):
    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool | None = None


ToolChoice = Annotated[ToolMode | ToolByName, Discriminator("type")]
Count = Annotated[Int, Between(0)]
Display = Literal["summarized", "omitted"]

_MAX_TEMPERATURE: Final = 2.0
"""Anthropic's is 1; local models are used with more."""


class InputMessage(WireModel):
    """A turn. A system message may come anywhere."""

    role: Literal["user", "assistant", "system"]
    content: Content


class ThinkingEnabled(WireModel):
    """budget_tokens: maximum tokens of thought. display: `omitted` leaves its text out of the answer."""

    type: Literal["enabled"]
    budget_tokens: Count
    display: Display | None = None


class ThinkingAdaptive(WireModel):
    """The model's template decides."""

    type: Literal["adaptive"]
    display: Display | None = None


class ThinkingOff(WireModel):
    """between_tools: the model thinks only after the result of a call."""

    type: Literal["disabled", "between_tools"]


Thinking = Annotated[ThinkingEnabled | ThinkingAdaptive | ThinkingOff, Discriminator("type")]


class OutputFormat(WireModel):
    """The answer is JSON that fits the schema."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any] | bool, Field(alias="schema")]


class OutputConfig(WireModel):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class CountTokensRequest(WireModel):
    """A conversation. Fields that only concern Anthropic's service, such as `cache_control`, are ignored."""

    model: str
    messages: Annotated[
        list[InputMessage],
        FirstError(),
        AtMost(limits.MAX_MESSAGES, "messages"),
        Field(
            description="The conversation so far. If the last message is the assistant's, it is continued."
        ),
    ]
    system: Annotated[
        str | Annotated[list[TextBlock], FirstError(), AtMost(limits.MAX_PARTS, "system")] | None,
        Field(description="Instructions."),
    ] = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    thinking: Annotated[
        Thinking | None, Field(description="Whether the model thinks before it answers. Null: it does not.")
    ] = None
    output_config: OutputConfig | None = None
    output_format: Annotated[
        OutputFormat | None, Field(description="The older place of `output_config.format`.")
    ] = None
    mcp_servers: Annotated[list[Any] | None, Field(description="Left out: this server calls no others.")] = (
        None
    )
    container: Annotated[Any, Field(description="Left out: this server runs no code.")] = None


class CreateMessageRequest(CountTokensRequest):
    """A conversation to continue."""

    max_tokens: Annotated[
        Count,
        Field(description="Maximum tokens of the answer, if the context has room. 0 only reads the prompt."),
    ]
    stream: bool | None = None
    temperature: Annotated[float, Between(0, _MAX_TEMPERATURE)] | None = None
    top_p: Annotated[float, Between(0, 1)] | None = None
    top_k: Count | None = None
    stop_sequences: Annotated[Strings, AtMost(limits.MAX_STOPS, "stop_sequences")] | None = None


Event = dict[str, Any]
"""One event of a stream: `type` and its members."""

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class ThinkingTokens(TypedDict):
    thinking_tokens: int


class MessageUsage(TypedDict):
    """The prompt has input_tokens and cache_read_input_tokens, which were in the prefix cache."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: NotRequired[ThinkingTokens]


class ContentBlock(TypedDict):
    """A text, a thought or a call, by its type."""

    type: Literal["text", "thinking", "tool_use"]
    text: NotRequired[str]
    thinking: NotRequired[str]
    signature: NotRequired[str]
    id: NotRequired[str]
    name: NotRequired[str]
    input: NotRequired[dict[str, Any]]


class StopDetails(TypedDict):
    """Why `max_tokens` ended an answer that had fewer: its text repeated itself."""

    type: Literal["repetition_detected"]


class MessageBody(TypedDict):
    """An answer. stop_reason: null at the start of a stream. stop_sequence: the text that ended it."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    stop_details: NotRequired[StopDetails]
    usage: MessageUsage


class TokenCount(TypedDict):
    input_tokens: int
