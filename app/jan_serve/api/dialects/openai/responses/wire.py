"""Wire type of a request to /v1/responses. It never leaves this folder."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from jan_serve.api.dialects.openai import limits
from jan_serve.api.dialects.openai.responses.wire_items import Input
from jan_serve.api.dialects.openai.responses.wire_tools import Tool, ToolChoice, Tools
from jan_serve.api.dialects.openai.wire_common import Effort, SamplingFields, TemplateFields
from jan_serve.api.dialects.openai.wire_response_format import JsonSchemaFormat, ResponseFormat
from jan_serve.api.shared.wire_types import AtMost, Between, Int, Strings, WireModel


class TextFormat(WireModel):
    """What the answer has to be."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: Annotated[Any, Field(alias="schema")] = None
    strict: bool | None = None


class TextConfig(WireModel):
    """How the text is wanted. verbosity is a wish that models here do not know of."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(WireModel):
    """How long to think, and how thoughts are shown: as `summary` where one is asked for, else as `content`."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None

    @property
    def wants_summary(self) -> bool:
        """Whether thoughts go into `summary`. They are not shortened: it is the thought itself."""
        return (self.summary or self.generate_summary or "none") != "none"


class CreateResponseRequest(SamplingFields, TemplateFields):
    """A conversation to go on with."""

    input: Annotated[Input, Field(description="What the user says, or the items of the conversation.")]
    instructions: Annotated[
        str | None,
        Field(description="A system message before all others; not carried over to the next request."),
    ] = None
    previous_response_id: Annotated[
        str | None, Field(description="An answer that is kept here, whose conversation goes on.")
    ] = None
    store: Annotated[
        bool,
        Field(
            description="Whether to keep the answer for `previous_response_id`, in memory and for a while."
        ),
    ] = True
    max_output_tokens: Annotated[
        Annotated[Int, Between(1)] | None,
        Field(description="Tokens to generate at most, thoughts included. Null is until the context ends."),
    ] = None
    tools: Tools = Field(default_factory=list[Tool])
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: Annotated[
        bool, Field(description="Whether one answer may hold several tool calls.")
    ] = True
    max_tool_calls: Int | None = None
    text: TextConfig = TextConfig()
    reasoning: Reasoning = Reasoning()
    include: Annotated[Strings, AtMost(limits.MAX_INCLUDE, "include")] = Field(default_factory=list[str])
    top_logprobs: Annotated[
        Annotated[Int, Between(0, limits.MAX_LOGPROBS)] | None,
        Field(description="Likely tokens to show beside each one of the answer."),
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

    @property
    def response_format(self) -> ResponseFormat | None:
        """`text.format` in the words of the other routes."""
        wanted = self.text.format
        if wanted is None:
            return None
        if wanted.type != "json_schema":
            return ResponseFormat(type=wanted.type)
        return ResponseFormat(
            type="json_schema", json_schema=JsonSchemaFormat.model_validate({"schema": wanted.schema_})
        )
