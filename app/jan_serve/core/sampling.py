"""How the next token is picked and when a sequence ends. Values only; the defaults switch everything off.

Each dialect fills in its own defaults, so a field that is absent here never means "the server decides". What the caller
did not say may be configured for the model (GenerationRequest.given).
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Watermark(msgspec.Struct, frozen=True):
    """The mark of `text.watermark`. gamma: share of the vocabulary that is green; delta: what its logits gain."""

    gamma: float = 0.5
    delta: float = 2.0


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Distribution shaping, in llama.cpp's terms (`llama_sampler_init_*`). Checked before it is built.

    temperature: 0 is greedy. top_k: 0 is off. top_p, typical_p: 1 is off. min_p: 0 is off.
    repeat_last_n: tokens of prompt and completion that penalties look back on; -1 is the whole context.
    infill: keep what fits a gap in code (`llama_sampler_init_infill`), behind the other truncations.
    mirostat_mode: 0 off, 1, 2; replaces top_k, top_p, min_p and typical_p.
    seed: None draws one; the engine reports which was used. Choice i of a request uses seed + i.
    logit_bias: token id to a value added to its raw logit.
    watermark: None is off; applies to greedy choices too.
    pipeline: `llama.cpp` is its chain of samplers. `tgi` is Text Generation Inference's (`engine.warping`): temperature
    first, penalties over the whole context with the frequency as a share of it, and log-probabilities of what the token
    was drawn from rather than of the raw logits. It knows neither min_p, presence_penalty, infill nor mirostat.
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
    pipeline: Literal["llama.cpp", "tgi"] = "llama.cpp"


class StopConditions(msgspec.Struct, frozen=True, kw_only=True):
    """When a sequence ends.

    max_tokens: None runs to the end of the context (under the server's ceiling); 0 computes the prompt only.
    min_tokens: end-of-generation tokens cannot be sampled before that many tokens.
    stop: the earliest occurrence of any of these strings ends the text, which then excludes it
    unless include_stop is set.
    stop_at_token_end: stop strings count only where a token ends with one, or with one and a line break behind it; the
    text then includes it in any case. As Text Generation Inference looks for them.
    stop_after_min: stop strings are looked for behind the first min_tokens tokens only. As LMDeploy does.
    ignore_eos: end-of-generation tokens never end the sequence (their logits are masked).
    max_decode_s: seconds after the first token, beyond which a text that has a line break ends.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    stop_at_token_end: bool = False
    stop_after_min: bool = False
    ignore_eos: bool = False
    max_decode_s: float | None = None
