"""Completion request → one GenerationRequest per prompt. Pure."""

from __future__ import annotations

from jan_serve.core.request import GenerationRequest, InfillPrompt, Prompt, TextPrompt, TokenPrompt
from jan_serve.dialects.openai.completions.wire import CreateCompletionRequest
from jan_serve.dialects.openai.parse_common import (
    adapter_choices,
    choice_counts,
    explicit_sampling,
    require,
)
from jan_serve.dialects.openai.parse_constraint import constraint_of
from jan_serve.dialects.openai.parse_sampling import bias_by_text, sampling_params, stop_conditions
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.keep_alive import keep_alive_s
from jan_serve.errors import InvalidRequest


def completion_requests(body: CreateCompletionRequest) -> list[GenerationRequest]:
    """In the order of the prompts. Raises InvalidRequest."""
    prompts = [_prompt(item, body.suffix) for item in prompt_items(body)]
    n, best_of = choice_counts(body.n, body.best_of, len(prompts))
    if body.logprobs is not None:
        require("logprobs", body.logprobs, 0, limits.MAX_LOGPROBS)
    sampling = sampling_params(body)
    bias = bias_by_text(body)
    stopping = stop_conditions(body, body.max_tokens if body.echo else body.max_tokens or None)
    requested = constraint_of(body)
    given, adapters, keep = explicit_sampling(body), adapter_choices(body.lora), keep_alive_s(body.keep_alive)
    return [
        GenerationRequest(
            model=body.model or None,
            prompt=prompt,
            sampling=sampling,
            logit_bias_text=bias,
            stopping=stopping,
            constraint=requested.constraint,
            constraint_field=requested.field,
            n=n,
            best_of=best_of,
            logprobs=body.logprobs,
            prompt_logprobs=body.logprobs if body.echo else None,
            given=given,
            adapters=adapters,
            keep_alive_s=keep,
        )
        for prompt in prompts
    ]


def prompt_items(body: CreateCompletionRequest) -> list[str | tuple[int, ...]]:
    """Each prompt is a text or token ids."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if prompt and isinstance(prompt[0], int):
        return [tuple(item for item in prompt if isinstance(item, int))]
    return [item if isinstance(item, str) else tuple(item) for item in prompt if not isinstance(item, int)]


def _prompt(item: str | tuple[int, ...], suffix: str | None) -> Prompt:
    if suffix:
        if isinstance(item, tuple):
            raise InvalidRequest("suffix: needs the prompt as text, not as token ids", param="suffix")
        return InfillPrompt(item, suffix, prefix_only=True)
    return TextPrompt(item) if isinstance(item, str) else TokenPrompt(item)
