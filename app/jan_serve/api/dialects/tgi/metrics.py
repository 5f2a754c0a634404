"""The `tgi_*` series of Text Generation Inference, which count the requests to its routes.

What its batching server measures per step is told as each sequence sees it: its prefill, and the time from one token to
the next. There are no series for what the engine does not do: batches are neither concatenated nor filtered.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jan_serve.api.models_port import ModelsState
from jan_serve.core.events import Completed, Finished, TextDelta
from jan_serve.errors import EngineFailure, InvalidRequest, JanServeError, Overloaded, TemplateError
from jan_serve.generation.batch import PromptEvent

if TYPE_CHECKING:
    from jan_serve.api.dialects.tgi.serving import Job

DURATION_BUCKETS: Final = tuple(0.00015 * 1.5**step for step in range(35))
_LENGTH_BUCKETS: Final = 100
_MOST_SEQUENCES: Final = 1024
_QUANTILES: Final = ("0", "0.5", "0.9", "0.95", "0.99", "0.999", "1")

_DURATIONS: Final = {
    "tgi_request_duration": "Seconds of a request.",
    "tgi_request_validation_duration": "Seconds until a request was checked.",
    "tgi_request_queue_duration": "Seconds in the queue.",
    "tgi_request_inference_duration": "Seconds of prefill and decode.",
    "tgi_request_mean_time_per_token_duration": "Seconds of prefill and decode for each token.",
}
_STEP_DURATIONS: Final = {
    "tgi_batch_inference_duration": "Seconds of a step, as a sequence sees it.",
    "tgi_batch_forward_duration": "Seconds of the model in a step, as a sequence sees it.",
}
_COUNTERS: Final = {
    "tgi_request_count": "Requests.",
    "tgi_request_success": "Requests that were generated to their end.",
    "tgi_request_failure": "Requests that failed, by reason.",
    "tgi_batch_inference_count": "Steps, as sequences see them.",
    "tgi_batch_inference_success": "Steps that succeeded.",
}


class TgiMetrics:
    """Registers the series; each appears on the page once it has a value."""

    def __init__(self, registry: CollectorRegistry, snapshot: Callable[[], ModelsState]) -> None:
        self._registry = registry
        self._snapshot = snapshot
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._histograms: dict[str, Histogram] = {}
        registry.register(_Series(self._counts, snapshot))

    def count(self, name: str, label: str = "", value: str = "", by: int = 1) -> None:
        """Add to a counter."""
        self._counts[name, label, value] += by

    def failed(self, error: JanServeError) -> None:
        """A request ended with this error."""
        self.count("tgi_request_failure", "err", _reason(error))

    def sized(self, *, max_input: int, max_total: int) -> None:
        """What lengths there may be: the first model that is served decides about the buckets."""
        self._lengths("tgi_request_input_length", "Tokens of the prompt.", max_input)
        self._lengths("tgi_request_max_new_tokens", "Tokens that were asked for.", max_total)
        self._lengths("tgi_request_generated_tokens", "Tokens that were generated.", max_total)

    def watch(self, jobs: Sequence[Job]) -> Watch:
        """For the events of these jobs."""
        running = sum(model.stats.running for model in self._snapshot().models)
        sizes = tuple(float(size) for size in range(1, _MOST_SEQUENCES + 1))
        self._histogram("tgi_batch_next_size", "Sequences of a batch that begins.", sizes).observe(
            running + len(jobs)
        )
        for job in jobs:
            self.observe("tgi_request_input_length", job.n_input)
            self.observe("tgi_request_max_new_tokens", job.max_new_tokens)
            self.observe("tgi_request_validation_duration", job.validated - job.started)
        return Watch(self, jobs)

    def observe(self, name: str, value: float) -> None:
        """Add a value to one of the histograms without labels."""
        histogram = self._histograms.get(name)
        if histogram is None:
            histogram = self._histogram(name, _DURATIONS[name], DURATION_BUCKETS)
        histogram.observe(value)

    def step(self, method: str, seconds: float) -> None:
        """A step of a sequence: `prefill` or `decode`."""
        self.count("tgi_batch_inference_count", "method", method)
        self.count("tgi_batch_inference_success", "method", method)
        for name, text in _STEP_DURATIONS.items():
            self._histogram(name, text, DURATION_BUCKETS, ("method",)).labels(method).observe(seconds)

    def _lengths(self, name: str, text: str, longest: int) -> None:
        self._histogram(
            name, text, tuple(longest * (step + 1) / _LENGTH_BUCKETS for step in range(_LENGTH_BUCKETS))
        )

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], labels: tuple[str, ...] = ()
    ) -> Histogram:
        if name not in self._histograms:
            self._histograms[name] = Histogram(name, text, labels, buckets=buckets, registry=self._registry)
        return self._histograms[name]


class Watch:
    """Reads the events of one answer."""

    def __init__(self, metrics: TgiMetrics, jobs: Sequence[Job]) -> None:
        self._metrics = metrics
        self._jobs = jobs
        self._last: dict[int, float] = {}
        self._generated = 0
        self._over = False

    def observe(self, item: PromptEvent) -> None:
        """Take the next event."""
        metrics = self._metrics
        match item.event:
            case TextDelta() as delta:
                now = time.perf_counter()
                if delta.index in self._last:
                    metrics.step("decode", now - self._last[delta.index])
                self._last[delta.index] = now
            case Finished() as finished:
                tokens = finished.completion_tokens + (finished.end_token is not None)
                self._generated += tokens
                metrics.observe("tgi_request_generated_tokens", tokens)
            case Completed(timings=timings):
                self._over = True
                inference_s = timings.prefill_s + timings.decode_s
                metrics.step("prefill", timings.prefill_s)
                for job in self._jobs:
                    metrics.count("tgi_request_success")
                    metrics.observe("tgi_request_duration", time.perf_counter() - job.started)
                    metrics.observe("tgi_request_queue_duration", timings.queue_s)
                    metrics.observe("tgi_request_inference_duration", inference_s)
                    metrics.observe(
                        "tgi_request_mean_time_per_token_duration", inference_s / max(1, self._generated)
                    )
            case _:
                pass

    def failed(self, error: JanServeError) -> None:
        """It ended with an error."""
        self._over = True
        self._metrics.failed(error)

    def close(self) -> None:
        """Nothing follows. Without an end, the client has left."""
        if not self._over:
            self._metrics.count("tgi_request_failure", "err", "dropped")


def _reason(error: JanServeError) -> str:
    match error:
        case Overloaded():
            return "overloaded"
        case TemplateError():
            return "template"
        case InvalidRequest():
            return "validation"
        case EngineFailure():
            return "generation"
        case _:
            return "incomplete"


class _CounterType(str):
    """The word `counter`. The text writer appends `_total` to what equals its own word; TGI's names have none."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


class _Series(Collector):
    """Counters, what the engines are doing now, and the one summary."""

    def __init__(self, counts: Counter[tuple[str, str, str]], snapshot: Callable[[], ModelsState]) -> None:
        self._counts = counts
        self._snapshot = snapshot

    def collect(self) -> Iterable[Metric]:
        """At each scrape."""
        for name, text in _COUNTERS.items():
            found = {key: count for key, count in self._counts.items() if key[0] == name}
            if found:
                family = Metric(name, text, "unknown")
                family.type = _CounterType("counter")
                for (_, label, value), count in sorted(found.items()):
                    family.add_sample(name, {label: value} if label else {}, float(count))
                yield family
        if self._counts:
            yield from self._gauges()
            yield self._skipped()

    def describe(self) -> Iterable[Metric]:
        """Nothing: the registry need not know the names in advance."""
        return ()

    def _gauges(self) -> Iterable[Metric]:
        stats = [model.stats for model in self._snapshot().models]
        for name, text, value in (
            ("tgi_queue_size", "Sequences that wait.", sum(each.waiting for each in stats)),
            ("tgi_batch_current_size", "Sequences that run.", sum(each.running for each in stats)),
            (
                "tgi_batch_current_max_tokens",
                "KV cells of sequences that run.",
                sum(each.cells_used for each in stats if each.running),
            ),
            ("tgi_batch_max_total_tokens", "KV cells.", sum(each.cells_total for each in stats)),
        ):
            yield GaugeMetricFamily(name, text, float(value))

    def _skipped(self) -> Metric:
        """Tokens that a step brought beyond the first: none is speculated."""
        name = "tgi_request_skipped_tokens"
        family = Metric(name, "Speculated tokens of a step.", "summary")
        for quantile in _QUANTILES:
            family.add_sample(name, {"quantile": quantile}, 0.0)
        family.add_sample(f"{name}_sum", {}, 0.0)
        steps = self._counts["tgi_batch_inference_count", "method", "decode"]
        family.add_sample(f"{name}_count", {}, float(steps))
        return family
