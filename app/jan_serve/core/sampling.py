"""Sampling parameters and stop conditions. The defaults switch everything off.

Each dialect fills in its own defaults. Settings of the model may replace those (GenerationRequest.given).
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec


class Watermark(msgspec.Struct, frozen=True):
    """Parameters of `text.watermark`. gamma: green share of the vocabulary; delta: value added to green logits."""

    gamma: float = 0.5
    delta: float = 2.0


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters, in llama.cpp's terms (`llama_sampler_init_*`).

    temperature: 0 is greedy. top_k: 0 is off. top_p, typical_p: 1 is off. min_p: 0 is off.
    repeat_last_n: window of the penalties in tokens of prompt and completion; -1 is the whole context.
    infill: `llama_sampler_init_infill`, after the other truncations.
    mirostat_mode: 0 off, 1, 2; replaces top_k, top_p, min_p and typical_p.
    seed: None draws one, which the engine reports. Choice i of a request uses seed + i.
    logit_bias: by token id, a value added to its raw logit.
    watermark: None is off; also applies to greedy sampling.
    pipeline: `llama.cpp` is its sampler chain. `warped` (`engine.warped_sampling`) has
    temperature first, penalties over the whole context with the frequency as a share of it, and log-probabilities of
    the final distribution instead of the raw logits. It has no min_p, presence_penalty, infill or mirostat.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    infill: bool = False
    mirostat_mode: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    seed: int | None = None
    logit_bias: dict[int, float] = msgspec.field(default_factory=dict[int, float])
    watermark: Watermark | None = None
    pipeline: Literal["llama.cpp", "warped"] = "llama.cpp"


class RepetitionDetection(msgspec.Struct, frozen=True, kw_only=True):
    """Ends an answer whose last tokens are one pattern, again and again; vLLM's `repetition_detection`.

    max_pattern_size, min_pattern_size: tokens of the pattern; a minimum of 0 is 1. min_count: how often it follows
    itself, at least twice. min_tokens: of all these together. escapes: how often the token that would go on with the
    pattern is forbidden instead, each time once.
    """

    max_pattern_size: int
    min_pattern_size: int = 1
    min_count: int
    min_tokens: int = 0
    escapes: int = 0


ESCAPES: Final = 3
LoopAction = Literal["off", "end", "escape"]
_LOOP: Final = RepetitionDetection(max_pattern_size=512, min_count=8, min_tokens=2_048)
LOOPS: Final[dict[LoopAction, RepetitionDetection | None]] = {
    "off": None,
    "end": _LOOP,
    "escape": msgspec.structs.replace(_LOOP, escapes=ESCAPES),
}
"""`stop_loops`. The sizes are beyond tables, logs and code: 25 equal lines of 80 tokens, a thousand zeros."""


class StopConditions(msgspec.Struct, frozen=True, kw_only=True):
    """When a sequence ends.

    max_tokens: None is up to the end of the context (or the server's ceiling); 0 computes only the prompt.
    min_tokens: end-of-generation tokens cannot be sampled before this many tokens.
    stop: the earliest occurrence of any of these strings ends the text, which excludes it
    unless include_stop is set.
    stop_at_token_end: match stop strings only at the end of a token, optionally before a line break, and always include
    them in the text, as Text Generation Inference does.
    stop_after_min: match stop strings only after the first min_tokens tokens, as LMDeploy does.
    ignore_eos: mask the logits of end-of-generation tokens.
    repetition_detection: ends a text that repeats itself, after the first min_tokens tokens.
    max_decode_s: seconds after the first token after which a text with a line break ends.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    stop_at_token_end: bool = False
    stop_after_min: bool = False
    ignore_eos: bool = False
    repetition_detection: RepetitionDetection | None = None
    max_decode_s: float | None = None
