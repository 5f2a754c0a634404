"""Responses request → GenerationRequest. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt, GenerationRequest
from jan_serve.dialects.openai.parse_common import (
    adapter_choices,
    explicit_sampling,
    reasoning_budget,
    template_kwargs,
)
from jan_serve.dialects.openai.parse_constraint import constraint_of
from jan_serve.dialects.openai.parse_sampling import bias_by_text, sampling_params, stop_conditions
from jan_serve.dialects.openai.responses.history import History
from jan_serve.dialects.openai.responses.tools import ToolBook
from jan_serve.dialects.openai.responses.wire import CreateResponseRequest
from jan_serve.dialects.openai.responses.wire_items import InputItem
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.keep_alive import keep_alive_s
from jan_serve.errors import InvalidRequest

LOGPROBS: Final = "message.output_text.logprobs"
ENCRYPTED_THOUGHTS: Final = "reasoning.encrypted_content"

_UNSUPPORTED: Final = {
    "background": "answers are made while their request is open",
    "conversation": "there are no stored conversations; previous_response_id goes on from an answer",
    "prompt": "there are no stored prompts",
}
"""Fields that cannot be ignored, and why they are rejected."""


class ParsedResponse(msgspec.Struct, frozen=True):
    """tools: maps calls back to the client's tools."""

    generation: GenerationRequest
    tools: ToolBook


def response_request(
    body: CreateResponseRequest, previous: Sequence[InputItem], items: Sequence[InputItem]
) -> ParsedResponse:
    """previous: the conversation of `previous_response_id`. items: of the body, with references resolved.

    Raises InvalidRequest.
    """
    _reject_unsupported(body)
    _check_metadata(body.metadata)
    history = History()
    history.add(previous, "previous_response_id")
    history.add(items)
    messages = history.finished()
    if body.instructions:
        messages = (Message(role="system", content=body.instructions), *messages)
    if not messages:
        raise InvalidRequest("input: at least one message is needed", param="input")
    book = ToolBook(body.tools)
    tools, choice = book.chosen(body.tool_choice)
    requested = constraint_of(body)
    warnings = (*history.warnings, *book.warnings)
    if body.truncation == "auto":
        warnings = (
            *warnings,
            "truncation: nothing is left out of a conversation that is too long; it is refused",
        )
    generation = GenerationRequest(
        model=body.model or None,
        prompt=ChatPrompt(
            messages=messages,
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=body.parallel_tool_calls,
            reasoning_budget=reasoning_budget(body, body.reasoning.effort),
            template_kwargs=template_kwargs(body, body.reasoning.effort),
        ),
        sampling=sampling_params(body),
        logit_bias_text=bias_by_text(body),
        stopping=stop_conditions(body, body.max_output_tokens),
        constraint=requested.constraint,
        constraint_field=requested.field,
        logprobs=_logprobs(body),
        given=explicit_sampling(body),
        adapters=adapter_choices(body.lora),
        keep_alive_s=keep_alive_s(body.keep_alive),
        warnings=warnings,
    )
    return ParsedResponse(generation, book)


def _logprobs(body: CreateResponseRequest) -> int | None:
    if body.top_logprobs:
        return body.top_logprobs
    return 0 if LOGPROBS in body.include else None


def _reject_unsupported(body: CreateResponseRequest) -> None:
    for field, reason in _UNSUPPORTED.items():
        if getattr(body, field):
            raise InvalidRequest(f"{field}: not on this server: {reason}", param=field)


def _check_metadata(metadata: dict[str, str]) -> None:
    for key, value in metadata.items():
        if len(key) > limits.MAX_METADATA_KEY or len(value) > limits.MAX_METADATA_VALUE:
            raise InvalidRequest(
                f"metadata: keys have {limits.MAX_METADATA_KEY} characters at most, and values"
                f" {limits.MAX_METADATA_VALUE}",
                param="metadata",
            )
