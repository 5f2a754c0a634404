"""Counters and measurements of a worker's engine; part of every Pong."""

from __future__ import annotations

from typing import Final

import msgspec

STEP_SIZES: Final = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
"""Bounds of EngineStats.step_sizes, in tokens."""


STEP_SECONDS: Final = tuple(0.00015 * 1.5**power for power in range(35))
"""Bounds of PartTimes.counts, in seconds: Text Generation Inference's."""


class PartTimes(msgspec.Struct, frozen=True):
    """How long one part of steps took. counts: steps up to each of STEP_SECONDS and above the one before, and the
    longer ones last; empty before the first one. seconds: of all."""

    counts: tuple[int, ...] = ()
    seconds: float = 0.0


class StepTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of one kind: those that prefill something, or those that do not.

    whole: steps that succeeded. forward: llama_decode. sampling: the rest of the step, with texts and stop strings.
    join: adding new sequences beside running ones. leave: removing finished sequences. A part counts only the
    steps that have it. failed: steps whose llama_decode failed.
    """

    whole: PartTimes = PartTimes()
    forward: PartTimes = PartTimes()
    sampling: PartTimes = PartTimes()
    join: PartTimes = PartTimes()
    leave: PartTimes = PartTimes()
    failed: int = 0


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the worker started (`*_total`), gauges of now. Forced tokens were generated without sampling.
    drafted, accepted: tokens that were guessed, and those of them that were right; by_model: those of a draft model
    or of the model's own head.
    shared: of the cached tokens, those that a running sequence had computed. passed: times that a waiting sequence was
    passed by one with a cached prefix. made_way: finished sequences that went to RAM for running ones. stream_pauses:
    of running streams while prompts were read. mixed_steps: steps that decoded and prefilled.
    saved, restored: sequences out of the KV cache and back into it; cache_ram_bytes: RAM of the saved ones.

    states: of sequences, kept for other servers or brought from them.
    step_sizes: steps by their tokens: up to each of STEP_SIZES and above the one before, and the larger ones last.
    extra_tokens: turns of sequences by how many guessed tokens they brought beside the sampled one, from none upwards.
    """

    steps_total: int = 0
    prompt_tokens_total: int = 0
    computed_tokens_total: int = 0
    cached_tokens_total: int = 0
    shared_tokens_total: int = 0
    passed_total: int = 0
    made_way_total: int = 0
    stream_pauses_total: int = 0
    mixed_steps_total: int = 0
    generated_tokens_total: int = 0
    forced_tokens_total: int = 0
    running: int = 0
    waiting: int = 0
    cells_used: int = 0
    cells_total: int = 0
    cached_sequences: int = 0
    saved_total: int = 0
    restored_total: int = 0
    media_encoded_total: int = 0
    media_reused_total: int = 0
    drafted_total: int = 0
    accepted_total: int = 0
    drafted_by_model_total: int = 0
    accepted_by_model_total: int = 0
    cache_ram_bytes: int = 0
    states: int = 0
    step_sizes: tuple[int, ...] = ()
    prefill_steps: StepTimes = StepTimes()
    decode_steps: StepTimes = StepTimes()
    extra_tokens: tuple[int, ...] = ()
    rss_bytes: int = 0
