from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Discriminator, Field, Tag
from typing_extensions import TypedDict

from jan_serve.dialects.openai.wire_common import ChoiceFields, Count, Effort, TemplateFields
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import StopDetail
from jan_serve.dialects.shared.thinking_fields import EarlierThought
from jan_serve.dialects.shared.wire_types import AtMost, FirstError, Int, Strings, WireModel, type_of


class TextPart(WireModel):
    """A text. `input_text` and `output_text` are its names in the Responses API, as `input_image` is an image's."""

    type: Literal["text", "input_text", "output_text"]
    text: str


class ThoughtPart(WireModel):
    """What the model thought, as Anthropic, Mistral and vLLM have it in the content. A redacted thought has no text."""

    type: Literal["thinking", "reasoning", "redacted_thinking"]
    thinking: str | list[TextPart] | None = None
    text: str | None = None


class ImageUrl(WireModel):
    url: str
    detail: Literal["auto", "low", "high", "original"] | None = "auto"


class ImagePart(WireModel):
    """An image: a data URL, base64, or a URL of a host that the server may fetch from. `detail` changes nothing."""

    type: Literal["image_url", "input_image"]
    image_url: str | ImageUrl


class InputAudio(WireModel):
    """format: the first bytes of the file decide instead."""

    data: str
    format: str | None = None


class AudioPart(WireModel):
    """Sound: WAV, MP3 or FLAC in base64."""

    type: Literal["input_audio"]
    input_audio: InputAudio


class RefusalPart(WireModel):
    """What the model said in place of an answer: read as text."""

    type: Literal["refusal"]
    refusal: str


class File(WireModel):
    """file_data: base64, alone or in a data URL. file_id: of a file at OpenAI, which this server lacks."""

    file_data: str | None = None
    filename: str | None = None
    file_id: str | None = None


class FilePart(WireModel):
    """A document: a PDF, or text in UTF-8."""

    type: Literal["file"]
    file: File


class OtherPart(WireModel):
    """Other media: rejected."""

    type: Literal["audio_url", "video_url"]


ContentPart = Annotated[
    TextPart | ImagePart | AudioPart | FilePart | RefusalPart | ThoughtPart | OtherPart,
    Field(discriminator="type"),
]
Parts = Annotated[list[ContentPart], FirstError(), AtMost(limits.MAX_PARTS, "messages.content")]
Content = str | Parts | None


class FunctionCall(WireModel):
    """A call by the model; arguments are JSON text, or the object itself."""

    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(WireModel):
    """A call with the id that its result refers to; without one, results go by the tool's name, or by their order."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall


class CustomCall(WireModel):
    """A call of a custom tool; input is plain text."""

    name: str
    input: str


class CustomToolCall(WireModel):
    id: str
    type: Literal["custom"]
    custom: CustomCall


def _call_tag(value: object) -> str:
    return "custom" if type_of(value) == "custom" else "function"


AnyToolCall = Annotated[
    Annotated[ToolCall, Tag("function")] | Annotated[CustomToolCall, Tag("custom")], Discriminator(_call_tag)
]


class SystemMessage(WireModel):
    """Instructions. `developer` is OpenAI's newer name of `system`."""

    role: Literal["system", "developer"]
    content: Content
    name: str | None = None


class UserMessage(WireModel):
    role: Literal["user"]
    content: Content
    name: str | None = None


class AssistantMessage(EarlierThought):
    """A turn of the model; content may be null if there are calls or a refusal."""

    role: Literal["assistant"]
    content: Content = None
    name: str | None = None
    tool_calls: (
        Annotated[list[AnyToolCall], FirstError(), AtMost(limits.MAX_TOOL_CALLS, "messages.tool_calls")]
        | None
    ) = None
    function_call: FunctionCall | None = None
    refusal: str | None = None


class ToolMessage(WireModel):
    """The result of a call; one without an id goes by `name`, and without both it is the next call's."""

    role: Literal["tool"]
    content: Content = None
    tool_call_id: str | None = None
    name: str | None = None


class FunctionMessage(WireModel):
    """The result of a call in the older form (`functions`)."""

    role: Literal["function"]
    content: Content
    name: str


ChatMessage = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage,
    Field(discriminator="role"),
]


class Function(WireModel):
    """A function that the model may call; parameters is a JSON Schema."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(WireModel):
    type: Literal["function"]
    function: Function


class FunctionName(WireModel):
    """Names a function."""

    name: str


class NamedToolChoice(WireModel):
    type: Literal["function"]
    function: FunctionName


class AllowedTools(WireModel):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedToolChoice], FirstError(), AtMost(limits.MAX_TOOLS, "tool_choice")]


class AllowedToolChoice(WireModel):
    """The only tools of `tools` that may be called."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class CreateChatCompletionRequest(ChoiceFields, TemplateFields):
    """A conversation to answer."""

    messages: Annotated[list[ChatMessage], FirstError(), AtMost(limits.MAX_MESSAGES, "messages")] = Field(
        default_factory=list[ChatMessage], description="The conversation so far."
    )
    functions: Annotated[list[Function], FirstError(), AtMost(limits.MAX_TOOLS, "functions")] | None = None
    function_call: Literal["none", "auto"] | FunctionName | None = None
    tools: Annotated[list[Tool], FirstError(), AtMost(limits.MAX_TOOLS, "tools")] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolChoice | AllowedToolChoice | None = None
    parallel_tool_calls: Annotated[
        bool | None, Field(description="Allows several tool calls in one answer.")
    ] = None
    reasoning_format: Literal["auto", "none", "deepseek"] | None = Field(
        None, description="`none` leaves thoughts in the content; otherwise they are in reasoning_content."
    )
    reasoning_effort: Effort | None = Field(
        None, description="Reasoning effort: passed to the template, and limits the tokens of thought."
    )
    max_tokens: Int | None = Field(
        None, description="Maximum tokens to generate. Null, 0 and -1 generate until the context is full."
    )
    max_completion_tokens: Annotated[Int | None, Field(description="OpenAI's newer name of max_tokens.")] = (
        None
    )
    max_output_tokens: Annotated[Int | None, Field(description="The AI SDK's name of max_tokens.")] = None
    stop_sequences: Annotated[Strings | None, AtMost(limits.MAX_STOPS, "stop_sequences")] = Field(
        None, description="The AI SDK's name of stop."
    )
    add_generation_prompt: Annotated[
        bool | None, Field(description="False: the prompt does not begin an answer after the messages.")
    ] = None
    continue_final_message: bool | None = Field(
        None,
        description="Whether the answer continues a last message of the assistant. Null: it does, unless"
        " add_generation_prompt is false.",
    )
    logprobs: bool | None = False
    top_logprobs: Count | None = Field(
        None, description="With logprobs: number of most likely tokens to return besides the chosen one."
    )


class TopLogprob(TypedDict):
    """A candidate. bytes: of the token, which may be part of a character."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprob(TypedDict):
    """A token of the answer and its most likely alternatives."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    content: list[TokenLogprob] | None
    refusal: list[TokenLogprob] | None


class PromptTokensDetails(TypedDict):
    cached_tokens: int


class CompletionTokensDetails(TypedDict):
    reasoning_tokens: int


class Usage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class Timings(TypedDict):
    """llama-server's timings. prompt_n: computed tokens; cache_n: tokens from the prefix cache."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class PromptProgress(TypedDict):
    """llama-server's progress in a prompt. processed: of `total` tokens, those of the cache included."""

    total: int
    cache: int
    processed: int
    time_ms: int


class ResponseFunction(TypedDict):
    """arguments: JSON text."""

    name: str
    arguments: str


class ResponseToolCall(TypedDict):
    """A call. id: the result must refer to it."""

    id: str
    type: Literal["function"]
    function: ResponseFunction


class ResponseMessage(TypedDict):
    role: Literal["assistant", "function"]
    content: str | None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ResponseToolCall]]
    function_call: NotRequired[ResponseFunction]


class ResponseChoice(StopDetail):
    index: int
    message: ResponseMessage
    logprobs: ChatLogprobs | None
    finish_reason: str | None


class CreateChatCompletionResponse(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ResponseChoice]
    usage: Usage
    timings: Timings


class ChatInputTokens(TypedDict):
    object: Literal["response.input_tokens"]
    input_tokens: int


class FunctionFragment(TypedDict):
    """Part of a call: the name comes once, the arguments in pieces."""

    name: NotRequired[str]
    arguments: str


class ToolCallFragment(TypedDict):
    """Part of the call number `index`. Id and type come with the name."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionFragment


class Delta(TypedDict):
    """The next piece of an answer: first the role, then thoughts, text and calls; empty with the finish reason."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCallFragment]]
    function_call: NotRequired[FunctionFragment]


class ChunkChoice(StopDetail):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: str | None


class ChatCompletionChunk(TypedDict):
    """One event of a stream. usage: absent unless requested; null in all events but the last."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: NotRequired[Usage | None]
    timings: NotRequired[Timings]
    prompt_progress: NotRequired[PromptProgress]
