"""Wire types of /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field

from jan_serve.dialects.anthropic.messages.wire_blocks import Content, TextBlock
from jan_serve.dialects.anthropic.messages.wire_tools import ToolChoice, Tools
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, Between, FirstError, Int, Strings, WireModel

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
