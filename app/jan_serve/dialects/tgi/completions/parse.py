"""TGI's completion request as native parameters. Pure."""

from __future__ import annotations

from jan_serve.dialects.tgi.completions.wire import CompletionRequest
from jan_serve.dialects.tgi.errors import BatchTooLarge, SuffixNotSupported
from jan_serve.dialects.tgi.generate.wire import Parameters


def prompts_of(body: CompletionRequest, max_prompts: int) -> list[str]:
    """Raises BatchTooLarge, SuffixNotSupported."""
    if body.suffix is not None:
        raise SuffixNotSupported("Suffix is not supported and can be achieved by preprocessing the prompt.")
    prompts = [body.prompt] if isinstance(body.prompt, str) else body.prompt
    if len(prompts) > max_prompts:
        raise BatchTooLarge(f"Number of prompts exceeds the maximum allowed batch size of {max_prompts}")
    return prompts


def completion_parameters(body: CompletionRequest) -> Parameters:
    """A temperature of 0 is greedy; without one, the text is sampled."""
    greedy = body.temperature == 0
    return Parameters(
        temperature=None if greedy else body.temperature,
        do_sample=not greedy,
        top_p=None if greedy else body.top_p,
        repetition_penalty=body.repetition_penalty,
        frequency_penalty=body.frequency_penalty,
        max_new_tokens=body.max_tokens,
        stop=body.stop or [],
        seed=body.seed,
        details=True,
    )
