"""Wire types of the request to /v1/responses: the items of a conversation, tools and the tool choice."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BeforeValidator, Discriminator, Field, Tag

from jan_serve.dialects.openai.chat.wire import RefusalPart, TextPart
from jan_serve.dialects.openai.wire_common import Effort, ResponseFormat, SamplingFields, TemplateFields
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import AtMost, Between, FirstError, Int, Strings, WireModel, type_of


class ImagePart(WireModel):
    """An image, as in a chat. file_id: of a file at OpenAI, which this server lacks. `detail` changes nothing."""

    type: Literal["input_image"]
    image_url: str | None = None
    file_id: str | None = None
    detail: Literal["auto", "low", "high", "original"] | None = None


class FilePart(WireModel):
    """A document, as in a chat. file_id, file_url: of a file elsewhere, which this server does not fetch."""

    type: Literal["input_file"]
    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None
    file_url: str | None = None


class MediaPart(WireModel):
    """Other media: rejected."""

    type: Literal["input_audio"]


ContentPart = Annotated[
    TextPart | RefusalPart | ImagePart | FilePart | MediaPart, Field(discriminator="type")
]
Parts = Annotated[list[ContentPart], FirstError(), AtMost(limits.MAX_PARTS, "input.content")]
Content = str | Parts


class MessageItem(WireModel):
    """A message. The only item whose type may be absent."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class FunctionCallItem(WireModel):
    """A call by the model; arguments are JSON text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class CustomCallItem(WireModel):
    """A call of a custom tool; input is plain text."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    input: str
    namespace: str | None = None


class CallOutputItem(WireModel):
    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Content


class ComputerCallItem(WireModel):
    """A call of a computer, with one action or several."""

    type: Literal["computer_call"]
    call_id: str
    action: dict[str, Any] | None = None
    actions: Annotated[list[dict[str, Any]], AtMost(limits.MAX_PARTS, "input.actions")] | None = None


class Screenshot(WireModel):
    """As an ImagePart."""

    type: Literal["computer_screenshot"] = "computer_screenshot"
    image_url: str | None = None
    file_id: str | None = None


class ComputerOutputItem(WireModel):
    """What the screen showed after a call."""

    type: Literal["computer_call_output"]
    call_id: str
    output: Screenshot


class SummaryText(WireModel):
    type: Literal["summary_text"]
    text: str


class ReasoningText(WireModel):
    type: Literal["reasoning_text", "text"]
    text: str


class ReasoningItem(WireModel):
    """A thought of the model. encrypted_content: ignored if another server made it."""

    type: Literal["reasoning"]
    summary: Annotated[list[SummaryText], FirstError(), AtMost(limits.MAX_PARTS, "input.summary")] = Field(
        default_factory=list[SummaryText]
    )
    content: (
        Annotated[list[ReasoningText], FirstError(), AtMost(limits.MAX_PARTS, "input.content")] | None
    ) = None
    encrypted_content: str | None = None


class CompactionItem(WireModel):
    """What stands for an earlier part of the conversation: left out if another server made it."""

    type: Literal["compaction"]
    encrypted_content: str


class ReferenceItem(WireModel):
    """Refers to an item of a stored answer by its id."""

    type: Literal["item_reference"]
    id: str


HostedType = Literal[
    "additional_tools",
    "agent_message",
    "apply_patch_call",
    "apply_patch_call_output",
    "code_interpreter_call",
    "compaction_trigger",
    "configuration_update",
    "context_compaction",
    "file_search_call",
    "image_generation_call",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
]


class HostedItem(WireModel):
    """An item of a hosted tool or service that this server lacks: left out of the conversation."""

    type: HostedType


_TAGS: Final = {
    "message": "message",
    "function_call": "function_call",
    "custom_tool_call": "custom_tool_call",
    "function_call_output": "output",
    "custom_tool_call_output": "output",
    "computer_call": "computer_call",
    "computer_call_output": "computer_call_output",
    "reasoning": "reasoning",
    "compaction": "compaction",
    "item_reference": "item_reference",
    **dict.fromkeys(get_args(HostedType), "hosted"),
}


def _tag(value: object) -> str | None:
    kind = type_of(value)
    if kind is None and isinstance(value, dict) and "type" not in value and "role" in value:
        return "message"
    return _TAGS.get(kind or "")


InputItem = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[CustomCallItem, Tag("custom_tool_call")]
    | Annotated[CallOutputItem, Tag("output")]
    | Annotated[ComputerCallItem, Tag("computer_call")]
    | Annotated[ComputerOutputItem, Tag("computer_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[CompactionItem, Tag("compaction")]
    | Annotated[ReferenceItem, Tag("item_reference")]
    | Annotated[HostedItem, Tag("hosted")],
    Discriminator(
        _tag,
        custom_error_type="unknown_item",
        custom_error_message="the type of an item must be message, function_call, function_call_output,"
        " custom_tool_call, custom_tool_call_output, reasoning, compaction or item_reference",
    ),
]
Items = Annotated[list[InputItem], FirstError(), AtMost(limits.MAX_MESSAGES, "input")]


def _items(value: object) -> object:
    """A text is a user message."""
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


Input = Annotated[Items, BeforeValidator(_items, json_schema_input_type=str | Items)]


class FunctionTool(WireModel):
    """A function that the model may call; parameters is a JSON Schema."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class CustomFormat(WireModel):
    """The format of a custom tool's input."""

    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: str | None = None


class CustomTool(WireModel):
    type: Literal["custom"]
    name: str
    description: str | None = None
    format: CustomFormat | None = None


class NamespaceTool(WireModel):
    """Tools under a common name; Codex sends the tools of an MCP server this way."""

    type: Literal["namespace"]
    name: str
    description: str | None = None
    tools: Annotated[
        list[Annotated[FunctionTool | CustomTool, Field(discriminator="type")]],
        FirstError(),
        AtMost(limits.MAX_TOOLS, "tools.tools"),
    ]


class HostedTool(WireModel):
    """A tool that OpenAI hosts and this server lacks: left out."""

    type: str


def _tool_tag(value: object) -> str | None:
    kind = type_of(value)
    return kind if kind is None or kind in ("function", "custom", "namespace") else "hosted"


Tool = Annotated[
    Annotated[FunctionTool, Tag("function")]
    | Annotated[CustomTool, Tag("custom")]
    | Annotated[NamespaceTool, Tag("namespace")]
    | Annotated[HostedTool, Tag("hosted")],
    Discriminator(_tool_tag, custom_error_type="no_type", custom_error_message="a tool needs a type, a text"),
]
Tools = Annotated[list[Tool], FirstError(), AtMost(limits.MAX_TOOLS, "tools")]


class NamedChoice(WireModel):
    type: Literal["function", "custom"]
    name: str
    namespace: str | None = None


class AllowedTools(WireModel):
    """The tools of `tools` that may be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[dict[str, Any]], AtMost(limits.MAX_TOOLS, "tool_choice.tools")]


class HostedChoice(WireModel):
    """A hosted tool that this server lacks: rejected."""

    type: str


def _choice_tag(value: object) -> str | None:
    if isinstance(value, str):
        return "mode"
    kind = type_of(value)
    if kind in ("function", "custom"):
        return "named"
    return kind if kind is None or kind == "allowed_tools" else "hosted"


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("mode")]
    | Annotated[NamedChoice, Tag("named")]
    | Annotated[AllowedTools, Tag("allowed_tools")]
    | Annotated[HostedChoice, Tag("hosted")],
    Discriminator(
        _choice_tag,
        custom_error_type="no_choice",
        custom_error_message="must be none, auto, required, or an object with a type",
    ),
]


class TextFormat(ResponseFormat):
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class TextConfig(WireModel):
    """verbosity has no effect."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(WireModel):
    """Reasoning effort, and where thoughts go: into `summary` if one is requested, else into `content`.

    max_tokens, enabled: OpenRouter's, as in a chat.
    """

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    max_tokens: Any = None
    enabled: Any = None

    @property
    def wants_summary(self) -> bool:
        """Whether thoughts go into `summary`, where they are not shortened."""
        return (self.summary or self.generate_summary or "none") != "none"


class CreateResponseRequest(SamplingFields, TemplateFields):
    """A conversation to continue."""

    input: Annotated[Input, Field(description="A user message, or the items of the conversation.")]
    instructions: str | None = Field(
        None, description="A system message before all others; the next request does not inherit it."
    )
    previous_response_id: Annotated[
        str | None, Field(description="Id of a stored answer whose conversation continues.")
    ] = None
    store: bool = Field(
        True, description="Store the answer for `previous_response_id`: in memory, until it is evicted."
    )
    max_output_tokens: Annotated[Int, Between(1)] | None = Field(
        None,
        description="Maximum tokens to generate, including thoughts. Null generates until the context is full.",
    )
    tools: Tools = Field(default_factory=list[Tool])
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: Annotated[bool, Field(description="Allows several tool calls in one answer.")] = True
    max_tool_calls: Int | None = None
    text: TextConfig = TextConfig()
    reasoning: Reasoning = Reasoning()
    include: Annotated[Strings, AtMost(limits.MAX_INCLUDE, "include")] = Field(default_factory=list[str])
    top_logprobs: Annotated[Int, Between(0, limits.MAX_LOGPROBS)] | None = Field(
        None, description="Number of most likely tokens to return besides each token of the answer."
    )
    truncation: Literal["auto", "disabled"] = "disabled"
    metadata: Annotated[dict[str, str], AtMost(limits.MAX_METADATA, "metadata")] = Field(
        default_factory=dict[str, str]
    )
    background: bool = False
    conversation: Any = None
    prompt: Any = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
