"""Wire types of an answer of /v1/responses."""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from jan_serve.dialects.openai.chat.wire import PromptTokensDetails, Timings, TokenLogprob

Event = dict[str, Any]
"""A stream event: a `type` and the fields of that type."""

ItemStatus = Literal["in_progress", "completed", "incomplete"]
Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class OutputText(TypedDict):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogprob]


class OutputMessage(TypedDict):
    id: str
    type: Literal["message"]
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText]


class ReasoningPart(TypedDict):
    type: Literal["reasoning_text", "summary_text"]
    text: str


class OutputReasoning(TypedDict):
    """A thought. encrypted_content: the same text to send back; only on request."""

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: list[ReasoningPart]
    content: list[ReasoningPart]
    encrypted_content: NotRequired[str]


class OutputFunctionCall(TypedDict):
    """arguments: JSON text."""

    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    arguments: str
    namespace: NotRequired[str]


class OutputCustomCall(TypedDict):
    id: str
    type: Literal["custom_tool_call"]
    status: ItemStatus
    call_id: str
    name: str
    input: str
    namespace: NotRequired[str]


OutputItem = OutputMessage | OutputReasoning | OutputFunctionCall | OutputCustomCall


class InputTokensDetails(PromptTokensDetails):
    """cache_write_tokens: computed tokens, now in the prefix cache."""

    cache_write_tokens: int


class OutputTokensDetails(TypedDict):
    reasoning_tokens: int


class ResponseUsage(TypedDict):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(TypedDict):
    """Why an answer is incomplete; null if it was aborted."""

    reason: Literal["max_output_tokens"] | None


class ResponseError(TypedDict):
    code: str
    message: str


class ResponseBody(TypedDict):
    """An answer with the parameters of its request.

    Sampling values are the request's or the API's defaults; the model's configured defaults are not shown.
    """

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
    timings: NotRequired[Timings]
    """Times of an answer that has ended, as in a chat."""
    warnings: NotRequired[list[str]]
    """Parts of the request that are enforced only partly, if there are any."""


class DeletedResponse(TypedDict):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


ShownItem = dict[str, Any]
"""An item of a conversation in the form of the API."""


class ItemPage(TypedDict):
    """Items of a conversation. Their ids are those of this list."""

    object: Literal["list"]
    data: list[ShownItem]
    first_id: str | None
    last_id: str | None
    has_more: bool


class InputTokens(TypedDict):
    object: Literal["response.input_tokens"]
    input_tokens: int
