"""Wire types of an answer of /v1/responses. They never leave this folder."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from jan_serve.api.dialects.openai.chat.wire import PromptTokensDetails, TokenLogprob

Event = dict[str, Any]
"""An event of a stream: a `type`, and what the protocol has for that type."""

ItemStatus = Literal["in_progress", "completed", "incomplete"]
Status = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputText(TypedDict):
    """Text of an answer."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogprob]


class OutputMessage(TypedDict):
    """What the model said."""

    id: str
    type: Literal["message"]
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText]


class ReasoningPart(TypedDict):
    """A thought, as content or as summary."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class OutputReasoning(TypedDict):
    """What the model thought. encrypted_content: the same, to be sent back; only where it is asked for."""

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: list[ReasoningPart]
    content: list[ReasoningPart]
    encrypted_content: NotRequired[str]


class OutputFunctionCall(TypedDict):
    """A call; arguments are JSON text."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    arguments: str
    namespace: NotRequired[str]


class OutputCustomCall(TypedDict):
    """A call of a custom tool."""

    id: str
    type: Literal["custom_tool_call"]
    status: ItemStatus
    call_id: str
    name: str
    input: str
    namespace: NotRequired[str]


OutputItem = OutputMessage | OutputReasoning | OutputFunctionCall | OutputCustomCall


class InputTokensDetails(PromptTokensDetails):
    """cache_write_tokens: those that were computed, which the prefix cache has from now on."""

    cache_write_tokens: int


class OutputTokensDetails(TypedDict):
    """reasoning_tokens: those of thoughts."""

    reasoning_tokens: int


class ResponseUsage(TypedDict):
    """Token counts."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(TypedDict):
    """Why an answer is cut short; null where somebody ended it."""

    reason: Literal["max_output_tokens"] | None


class ResponseError(TypedDict):
    """What broke an answer off."""

    code: str
    message: str


class ResponseBody(TypedDict):
    """An answer, with what was asked for. Values of sampling are the request's or the API's; for those that the request
    does not give, what is configured for the model counts more."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Status
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    model: str
    output: list[OutputItem]
    usage: ResponseUsage | None
    previous_response_id: str | None
    store: bool
    background: bool
    max_output_tokens: int | None
    max_tool_calls: int | None
    parallel_tool_calls: bool
    tool_choice: Any
    tools: list[dict[str, Any]]
    text: dict[str, Any]
    reasoning: dict[str, Any]
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    truncation: Literal["auto", "disabled"]
    metadata: dict[str, str]
    service_tier: Literal["default"]
    prompt_cache_key: str | None
    safety_identifier: str | None
    user: str | None


class DeletedResponse(TypedDict):
    """An answer that is no longer kept."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputTokens(TypedDict):
    """How long the prompt would be."""

    object: Literal["response.input_tokens"]
    input_tokens: int
