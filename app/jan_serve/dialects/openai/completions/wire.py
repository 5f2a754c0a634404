from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.openai.chat.wire import PromptProgress, Timings, Usage
from jan_serve.dialects.openai.wire_common import ChoiceFields, Count
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.answers import StopDetail
from jan_serve.dialects.shared.wire_types import Inputs, Int, TextsOrTokens


class CreateCompletionRequest(ChoiceFields):
    """Texts or token ids to continue."""

    prompt: Annotated[
        Inputs,
        TextsOrTokens("prompt", limits.MAX_CHOICES, limits.MAX_PROMPT_TOKENS),
        Field(description="A text, token ids, or a list of these.", validate_default=True),
    ] = cast(Any, "")
    suffix: Annotated[str | None, Field(description="Text that follows what is generated.")] = None
    max_tokens: Annotated[
        Count | None,
        Field(
            description="Maximum tokens to generate. Null and 0 generate until the context is full; with `echo`, 0 only"
            " scores the prompt."
        ),
    ] = 16
    echo: Annotated[bool, Field(description="Put the prompt before the answer.")] = False
    logprobs: Annotated[
        Count | None,
        Field(description="Return log-probabilities, of this many likely tokens besides the chosen one."),
    ] = None
    best_of: Annotated[
        Int | None, Field(description="Answers to generate; the n most likely ones are returned.")
    ] = 1


class CompletionLogprobs(TypedDict):
    """Parallel lists, one entry per token. text_offset counts characters."""

    tokens: list[str]
    text_offset: list[int]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(StopDetail):
    """One answer; in a stream, its next piece."""

    text: str
    index: int
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None


class CreateCompletionResponse(TypedDict):
    """All answers, or one event of a stream. usage: in streams only on request."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: NotRequired[Usage | None]
    timings: NotRequired[Timings]
    prompt_progress: NotRequired[PromptProgress]
