"""Wire types of the request to /v1/responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from jan_serve.dialects.openai.responses.wire_items import Input
from jan_serve.dialects.openai.responses.wire_tools import Tool, ToolChoice, Tools
from jan_serve.dialects.openai.wire_common import Effort, SamplingFields, TemplateFields
from jan_serve.dialects.openai.wire_response_format import ResponseFormat
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, Between, Int, Strings, WireModel


class TextFormat(ResponseFormat):
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class TextConfig(WireModel):
    """verbosity has no effect."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(WireModel):
    """Reasoning effort, and where thoughts go: into `summary` if one is requested, else into `content`."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None

    @property
    def wants_summary(self) -> bool:
        """Whether thoughts go into `summary`, where they are not shortened."""
        return (self.summary or self.generate_summary or "none") != "none"


class CreateResponseRequest(SamplingFields, TemplateFields):
    """A conversation to continue."""

    input: Annotated[Input, Field(description="A user message, or the items of the conversation.")]
    instructions: Annotated[
        str | None,
        Field(description="A system message before all others; the next request does not inherit it."),
    ] = None
    previous_response_id: Annotated[
        str | None, Field(description="Id of a stored answer whose conversation continues.")
    ] = None
    store: Annotated[
        bool,
        Field(description="Store the answer for `previous_response_id`: in memory, until it is evicted."),
    ] = True
    max_output_tokens: Annotated[
        Annotated[Int, Between(1)] | None,
        Field(
            description="Maximum tokens to generate, including thoughts. Null generates until the context is full."
        ),
    ] = None
    tools: Tools = Field(default_factory=list[Tool])
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: Annotated[bool, Field(description="Allows several tool calls in one answer.")] = True
    max_tool_calls: Int | None = None
    text: TextConfig = TextConfig()
    reasoning: Reasoning = Reasoning()
    include: Annotated[Strings, AtMost(limits.MAX_INCLUDE, "include")] = Field(default_factory=list[str])
    top_logprobs: Annotated[
        Annotated[Int, Between(0, limits.MAX_LOGPROBS)] | None,
        Field(description="Number of most likely tokens to return besides each token of the answer."),
    ] = None
    truncation: Literal["auto", "disabled"] = "disabled"
    metadata: Annotated[dict[str, str], AtMost(limits.MAX_METADATA, "metadata")] = Field(
        default_factory=dict[str, str]
    )
    background: bool = False
    conversation: Any = None
    prompt: Any = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
