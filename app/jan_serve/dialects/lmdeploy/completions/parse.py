"""Completion request → one GenerationRequest per prompt. Pure; all functions raise InvalidRequest."""

from __future__ import annotations

from jan_serve.core.request import GenerationRequest, Prompt, TextPrompt, TokenPrompt
from jan_serve.dialects.lmdeploy.completions.wire import CompletionRequest
from jan_serve.dialects.lmdeploy.parse_common import (
    candidates,
    choice_count,
    constraint_of,
    explicit_sampling,
    sampling_params,
    stop_conditions,
    token_limit,
)


def completion_requests(body: CompletionRequest) -> list[GenerationRequest]:
    prompts = _prompts(body)
    n = choice_count(body.n, len(prompts))
    sampling = sampling_params(body, temperature=body.temperature, top_k=body.top_k, seed=body.seed)
    stopping = stop_conditions(body, max_tokens=token_limit(body.max_completion_tokens, body.max_tokens))
    return [
        GenerationRequest(
            model=body.model,
            prompt=prompt,
            n=n,
            best_of=n,
            sampling=sampling,
            stopping=stopping,
            constraint=constraint_of(body.response_format),
            logprobs=candidates(body.logprobs, "logprobs"),
            return_tokens=True,
            skip_special_tokens=body.skip_special_tokens is not False,
            given=explicit_sampling(body),
        )
        for prompt in prompts
    ]


def _prompts(body: CompletionRequest) -> list[Prompt]:
    prompt = body.prompt
    if isinstance(prompt, str):
        return [TextPrompt(prompt)]
    if prompt and isinstance(prompt[0], int):
        return [TokenPrompt(tuple(item for item in prompt if isinstance(item, int)))]
    return [
        TextPrompt(item) if isinstance(item, str) else TokenPrompt(tuple(item))
        for item in prompt
        if not isinstance(item, int)
    ]
