"""Wire types of LMDeploy's /v1/completions."""

from __future__ import annotations

from typing import Annotated, Literal

from typing_extensions import TypedDict

from jan_serve.dialects.lmdeploy.wire_common import SamplingFields, Usage
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.wire_types import Int, TextsOrTokens


class CompletionRequest(SamplingFields):
    """Texts or token ids to continue. `echo` and `suffix` have no effect, as in LMDeploy."""

    prompt: Annotated[
        str | list[str] | list[int] | list[list[int]],
        TextsOrTokens("prompt", limits.MAX_CHOICES, limits.MAX_PROMPT_TOKENS),
    ]
    max_tokens: Int | None = 16
    logprobs: Int | None = None
    echo: bool | None = False
    suffix: str | None = None


class CompletionLogprobs(TypedDict):
    """Parallel lists, one entry per token. text_offset counts characters of the generated text."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


class CompletionChoice(TypedDict):
    """One answer; in a stream, its next piece."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    gen_tokens: list[int] | None
    finish_reason: str | None


class CompletionReply(TypedDict):
    """All answers, or one event of a stream. usage: in streams null, except in the last event if requested."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None
