"""The `tgi_batch_*` series of steps, and the tokens of accepted drafts, from the engines' counters.

Steps are shared, so the series count the requests of all protocols.

A prefill joins the running batch without waiting for it and in pieces, which TGI calls chunking.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client.core import HistogramMetricFamily, Metric

from jan_serve.core.engine_stats import STEP_SECONDS, EngineStats, PartTimes, StepTimes

_QUANTILES: Final = ("0", "0.5", "0.9", "0.95", "0.99", "0.999", "1")
_BOUNDS: Final = (*(repr(bound) for bound in STEP_SECONDS), "+Inf")
_DURATIONS: Final[tuple[tuple[str, str, Callable[[StepTimes], PartTimes]], ...]] = (
    ("tgi_batch_inference_duration", "Seconds of a step.", lambda steps: steps.whole),
    ("tgi_batch_forward_duration", "Seconds of the model in a step.", lambda steps: steps.forward),
    (
        "tgi_batch_decode_duration",
        "Seconds of sampling and of texts in a step.",
        lambda steps: steps.sampling,
    ),
    ("tgi_batch_filter_duration", "Seconds of letting go of sequences that end.", lambda steps: steps.leave),
    (
        "tgi_batch_concat_duration",
        "Seconds of taking sequences in beside running ones.",
        lambda steps: steps.join,
    ),
)
Kinds = Sequence[tuple[str, Sequence[StepTimes]]]


class CounterType(str):
    """Equal to no string: the text writer appends `_total` to names of the type "counter"; TGI's names have none."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


def counter(name: str, text: str, values: Iterable[tuple[dict[str, str], float]]) -> Metric:
    """A counter of exactly this name. values: by labels."""
    family = Metric(name, text, "unknown")
    family.type = CounterType("counter")
    for labels, value in values:
        family.add_sample(name, labels, value)
    return family


def batch_series(engines: Sequence[EngineStats]) -> Iterable[Metric]:
    """Only series that have a value."""
    kinds = (
        ("decode", [engine.decode_steps for engine in engines]),
        ("prefill", [engine.prefill_steps for engine in engines]),
    )
    succeeded = {method: sum(_count(each.whole) for each in steps) for method, steps in kinds}
    failed = {method: sum(each.failed for each in steps) for method, steps in kinds}
    tried = {method: succeeded[method] + failed[method] for method, _ in kinds}
    for name, text, counts in (
        ("tgi_batch_inference_count", "Steps.", tried),
        ("tgi_batch_inference_success", "Steps that succeeded.", succeeded),
        ("tgi_batch_inference_failure", "Steps that failed.", failed),
    ):
        values = [({"method": method}, float(count)) for method, count in counts.items() if count]
        if values:
            yield counter(name, text, values)
    joins = sum(_count(each.join) for _, steps in kinds for each in steps)
    if joins:
        text = "Times that sequences were taken in beside running ones."
        yield counter("tgi_batch_concat", text, [({"reason": "chunking"}, float(joins))])
    yield from _durations(kinds)


def _durations(kinds: Kinds) -> Iterable[Metric]:
    for name, text, part in _DURATIONS:
        family = HistogramMetricFamily(name, text, labels=("method",))
        for method, steps in kinds:
            parts = [part(each) for each in steps if part(each).counts]
            if parts:
                counts = (sum(column) for column in zip(*(each.counts for each in parts), strict=True))
                buckets = list(zip(_BOUNDS, map(float, itertools.accumulate(counts)), strict=True))
                family.add_metric((method,), buckets, sum(each.seconds for each in parts))
        if family.samples:
            yield family


def _count(part: PartTimes) -> int:
    return sum(part.counts)


def skipped_tokens(engines: Sequence[EngineStats]) -> Metric:
    """Accepted draft tokens of each turn of a sequence, beside the sampled token."""
    name = "tgi_request_skipped_tokens"
    columns = itertools.zip_longest(*(engine.extra_tokens for engine in engines), fillvalue=0)
    reached = list(itertools.accumulate(sum(column) for column in columns))
    turns = reached[-1] if reached else 0
    family = Metric(name, "Guessed tokens that a turn brought.", "summary")
    for quantile in _QUANTILES:
        rank = max(1.0, float(quantile) * turns)
        value = next((tokens for tokens, below in enumerate(reached) if below >= rank), 0)
        family.add_sample(name, {"quantile": quantile}, float(value))
    total = sum(tokens * count for engine in engines for tokens, count in enumerate(engine.extra_tokens))
    family.add_sample(f"{name}_sum", {}, float(total))
    family.add_sample(f"{name}_count", {}, float(turns))
    return family
