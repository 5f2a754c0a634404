"""TGI's series: `tgi_*` of the requests to its routes, `tgi_batch_*` of the steps and drafts of the engines."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from jan_serve.core.engine_stats import STEP_SECONDS, EngineStats, PartTimes, StepTimes
from jan_serve.core.events import Completed, Finished, Timings
from jan_serve.core.models import ManagerSnapshot
from jan_serve.errors import EngineFailure, InvalidRequest, JanServeError, Overloaded, TemplateError
from jan_serve.http.metrics import StateCollector

if TYPE_CHECKING:
    from jan_serve.core.events import GenerationEvent
    from jan_serve.dialects.tgi.serving import Job

_QUANTILES: Final = ("0", "0.5", "0.9", "0.95", "0.99", "0.999", "1")
_BOUNDS: Final = (*(repr(bound) for bound in STEP_SECONDS), "+Inf")
_STEP_DURATIONS: Final[tuple[tuple[str, str, Callable[[StepTimes], PartTimes]], ...]] = (
    ("inference", "Seconds of a step.", lambda steps: steps.whole),
    ("forward", "Seconds of the model in a step.", lambda steps: steps.forward),
    ("decode", "Seconds of sampling and of texts in a step.", lambda steps: steps.sampling),
    ("filter", "Seconds of letting go of sequences that end.", lambda steps: steps.leave),
    ("concat", "Seconds of taking sequences in beside running ones.", lambda steps: steps.join),
)
"""The series `tgi_batch_…_duration`."""


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
    kinds = {
        "decode": [engine.decode_steps for engine in engines],
        "prefill": [engine.prefill_steps for engine in engines],
    }
    succeeded = {method: sum(sum(each.whole.counts) for each in steps) for method, steps in kinds.items()}
    failed = {method: sum(each.failed for each in steps) for method, steps in kinds.items()}
    tried = {method: succeeded[method] + failed[method] for method in kinds}
    for name, text, counts in (
        ("count", "Steps.", tried),
        ("success", "Steps that succeeded.", succeeded),
        ("failure", "Steps that failed.", failed),
    ):
        values = [({"method": method}, float(count)) for method, count in counts.items() if count]
        if values:
            yield counter(f"tgi_batch_inference_{name}", text, values)
    if joins := sum(sum(each.join.counts) for steps in kinds.values() for each in steps):
        text = "Times that sequences were taken in beside running ones."
        yield counter("tgi_batch_concat", text, [({"reason": "chunking"}, float(joins))])
    for name, text, part in _STEP_DURATIONS:
        family = HistogramMetricFamily(f"tgi_batch_{name}_duration", text, labels=("method",))
        for method, steps in kinds.items():
            parts = [part(each) for each in steps if part(each).counts]
            if parts:
                counts = (sum(column) for column in zip(*(each.counts for each in parts), strict=True))
                buckets = list(zip(_BOUNDS, map(float, itertools.accumulate(counts)), strict=True))
                family.add_metric((method,), buckets, sum(each.seconds for each in parts))
        if family.samples:
            yield family


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


_LENGTH_BUCKETS: Final = 100
_MAX_SEQUENCES: Final = 1024

_DURATIONS: Final = {
    "tgi_request_duration": "Seconds of a request.",
    "tgi_request_validation_duration": "Seconds until a request was checked.",
    "tgi_request_queue_duration": "Seconds in the queue.",
    "tgi_request_inference_duration": "Seconds of prefill and decode.",
    "tgi_request_mean_time_per_token_duration": "Seconds of prefill and decode for each token.",
}
_COUNTERS: Final = {
    "tgi_request_count": "Requests.",
    "tgi_request_success": "Requests that were generated to their end.",
    "tgi_request_failure": "Requests that failed, by reason.",
}


class TgiMetrics:
    """Registers the series. Each appears on the page once it has a value."""

    def __init__(self, registry: CollectorRegistry, snapshot: Callable[[], ManagerSnapshot]) -> None:
        self._registry = registry
        self._snapshot = snapshot
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._histograms: dict[str, Histogram] = {}
        registry.register(_Series(self._counts, snapshot))

    def count(self, name: str, label: str = "", value: str = "", by: int = 1) -> None:
        self._counts[name, label, value] += by

    def failed(self, error: JanServeError) -> None:
        self.count("tgi_request_failure", "err", _reason(error))

    def sized(self, *, max_input: int, max_total: int) -> None:
        """The limits of lengths. Those of the first model that is served set the buckets."""
        for name, text, longest in (
            ("tgi_request_input_length", "Tokens of the prompt.", max_input),
            ("tgi_request_max_new_tokens", "Tokens that were asked for.", max_total),
            ("tgi_request_generated_tokens", "Tokens that were generated.", max_total),
        ):
            steps = range(1, _LENGTH_BUCKETS + 1)
            self._histogram(name, text, tuple(longest * step / _LENGTH_BUCKETS for step in steps))

    def watch(self, jobs: Sequence[Job], timings: Sequence[Timings]) -> Watch:
        """Observe the events of these jobs. timings: of each job, read when all have ended."""
        sizes = tuple(float(size) for size in range(1, _MAX_SEQUENCES + 1))
        histogram = self._histogram("tgi_batch_next_size", "Sequences that begin together.", sizes)
        histogram.observe(sum(job.request.n for job in jobs))
        for job in jobs:
            self.observe("tgi_request_input_length", job.n_input)
            self.observe("tgi_request_max_new_tokens", job.ending.max_new_tokens)
            self.observe("tgi_request_validation_duration", job.validated - job.started)
        return Watch(self, jobs, timings)

    def observe(self, name: str, value: float) -> None:
        """Add a value to one of the histograms without labels."""
        if name not in self._histograms:
            self._histogram(name, _DURATIONS[name], STEP_SECONDS)
        self._histograms[name].observe(value)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        if name not in self._histograms:
            self._histograms[name] = Histogram(name, text, buckets=buckets, registry=self._registry)
        return self._histograms[name]


class Watch:
    """Observes the events of one answer."""

    def __init__(self, metrics: TgiMetrics, jobs: Sequence[Job], timings: Sequence[Timings]) -> None:
        self._metrics = metrics
        self._jobs = jobs
        self._timings = timings
        self._best: dict[int, Finished] = {}
        self._over = False

    def observe(self, item: GenerationEvent) -> None:
        metrics = self._metrics
        match item:
            case Finished() as finished:
                prompt = finished.index // self._jobs[0].request.n
                best = self._best.get(prompt)
                if best is None or (finished.mean_logprob or 0.0) > (best.mean_logprob or 0.0):
                    self._best[prompt] = finished
            case Completed():
                self._over = True
                for prompt, (job, timings) in enumerate(zip(self._jobs, self._timings, strict=True)):
                    inference_s, best = timings.prefill_s + timings.decode_s, self._best.get(prompt)
                    generated = 0 if best is None else best.completion_tokens + (best.end_token is not None)
                    metrics.count("tgi_request_success")
                    for name, value in (
                        ("generated_tokens", generated),
                        ("duration", time.perf_counter() - job.started),
                        ("queue_duration", timings.queue_s),
                        ("inference_duration", inference_s),
                        ("mean_time_per_token_duration", inference_s / max(1, generated)),
                    ):
                        metrics.observe(f"tgi_request_{name}", value)
            case _:
                pass

    def failed(self, error: JanServeError) -> None:
        self._over = True
        self._metrics.failed(error)

    def close(self) -> None:
        """No event follows. Without Completed or an error, the client has left."""
        if not self._over:
            self._metrics.count("tgi_request_failure", "err", "dropped")


_REASONS: Final = (
    (Overloaded, "overloaded"),
    (TemplateError, "template"),
    (InvalidRequest, "validation"),
    (EngineFailure, "generation"),
)


def _reason(error: JanServeError) -> str:
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "incomplete")


class _Series(StateCollector):
    """Counters, gauges of the engines, and the summary."""

    def __init__(
        self, counts: Counter[tuple[str, str, str]], snapshot: Callable[[], ManagerSnapshot]
    ) -> None:
        self._counts = counts
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        for name, text in _COUNTERS.items():
            values = [
                ({label: value} if label else {}, float(count))
                for (of, label, value), count in sorted(self._counts.items())
                if of == name
            ]
            if values:
                yield counter(name, text, values)
        engines = [model.stats for model in self._snapshot().models]
        if self._counts:
            used = sum(each.cells_used for each in engines if each.running)
            for name, text, value in (
                ("queue_size", "Sequences that wait.", sum(each.waiting for each in engines)),
                ("batch_current_size", "Sequences that run.", sum(each.running for each in engines)),
                ("batch_current_max_tokens", "KV cells of sequences that run.", used),
                ("batch_max_total_tokens", "KV cells.", sum(each.cells_total for each in engines)),
            ):
                yield GaugeMetricFamily(f"tgi_{name}", text, float(value))
            yield skipped_tokens(engines)
        yield from batch_series(engines)
