"""LMDeploy's series (`lmdeploy:*`), over the requests of all dialects. `engine` is always 0: a model has one worker."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily, Metric

from jan_serve import __version__
from jan_serve.core.engine_stats import STEP_SIZES
from jan_serve.core.models import ManagerSnapshot, ModelStatus
from jan_serve.http.metrics import StateCollector
from jan_serve.http.request_record import RequestRecord

_LABELS: Final = ("model_name", "engine")
_ENGINE: Final = "0"
_TOKENS: Final = (*(step * 10**power for power in range(6) for step in (1, 2, 5)), 1_000_000)
"""LMDeploy's steps of 1, 2 and 5, beyond the context of any model."""

_SECONDS: Final = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_FIRST_TOKEN_S: Final = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_PER_TOKEN_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)


def _per_token_s(record: RequestRecord) -> float | None:
    later = record.completion_tokens - 1
    return record.decode_s / later if record.decode_s is not None and later > 0 else None


def _inference_s(record: RequestRecord) -> float | None:
    if record.prefill_s is None or record.decode_s is None:
        return None
    return record.prefill_s + record.decode_s


_COUNTERS: Final[tuple[tuple[str, str, Callable[[RequestRecord], int]], ...]] = (
    ("prompt_tokens", "Prompt tokens of finished requests.", lambda it: it.prompt_tokens),
    ("generation_tokens", "Tokens generated for finished requests.", lambda it: it.completion_tokens),
)
_Values = Callable[[RequestRecord], Iterable[float | None]]
_HISTOGRAMS: Final[tuple[tuple[str, str, tuple[float, ...], _Values], ...]] = (
    ("request_prompt_tokens", "Prompt tokens.", _TOKENS, lambda it: [it.prompt_tokens]),
    ("request_generation_tokens", "Generated tokens.", _TOKENS, lambda it: [it.completion_tokens]),
    (
        "time_to_first_token_seconds",
        "From arrival to the first text.",
        _FIRST_TOKEN_S,
        lambda it: [it.first_token_s],
    ),
    (
        "time_per_output_token_seconds",
        "Decode time over the tokens after the first one.",
        _PER_TOKEN_S,
        lambda it: [_per_token_s(it)],
    ),
    (
        "iter_token_latency",
        "Between neighbouring pieces of an answer.",
        _PER_TOKEN_S,
        lambda it: it.token_gaps_s,
    ),
    ("e2e_request_latency_seconds", "From arrival to the end.", _SECONDS, lambda it: [it.elapsed_s()]),
    ("request_queue_time_seconds", "Waiting in the engine.", _SECONDS, lambda it: [it.queue_s]),
    ("request_inference_time_seconds", "Prefill and decode.", _SECONDS, lambda it: [_inference_s(it)]),
    ("request_prefill_time_seconds", "Prefill.", _SECONDS, lambda it: [it.prefill_s]),
    ("request_decode_time_seconds", "Decode.", _SECONDS, lambda it: [it.decode_s]),
)
_GAUGES: Final[tuple[tuple[str, str, Callable[[ModelStatus], float]], ...]] = (
    ("num_api_requests_routed", "Requests that were given to the engine.", lambda model: model.leases),
    ("num_api_requests_waiting", "Requests that wait for the model.", lambda model: model.waiting),
    ("num_requests_running", "Sequences in the batch.", lambda model: model.stats.running),
    ("num_requests_waiting", "Sequences that wait in the engine.", lambda model: model.stats.waiting),
    (
        "gpu_cache_usage_perc",
        "KV cells in use, 0 to 1.",
        lambda model: model.stats.cells_used / (model.stats.cells_total or 1),
    ),
)


class LmdeployMetrics:
    """Counts finished requests, except those that failed before a model was found."""

    def __init__(self, registry: CollectorRegistry, snapshot: Callable[[], ManagerSnapshot]) -> None:
        self._completed: defaultdict[str, int] = defaultdict(int)
        self._counters = [
            (Counter(f"lmdeploy:{name}", text, _LABELS, registry=registry), value)
            for name, text, value in _COUNTERS
        ]
        self._histograms = [
            (Histogram(f"lmdeploy:{name}", text, _LABELS, buckets=buckets, registry=registry), values)
            for name, text, buckets, values in _HISTOGRAMS
        ]
        self._success = Counter(
            "lmdeploy:request_success",
            "Answers that came to their end.",
            (*_LABELS, "finished_reason"),
            registry=registry,
        )
        registry.register(_StateCollector(snapshot, self._completed))

    def observe(self, status: int, record: RequestRecord) -> None:
        if not record.model:
            return
        self._completed[record.model] += 1
        labels = (record.model, _ENGINE)
        for counter, count in self._counters:
            counter.labels(*labels).inc(count(record))
        for histogram, values in self._histograms:
            child = histogram.labels(*labels)
            for value in values(record):
                if value is not None:
                    child.observe(value)
        for reason in record.finish_reasons:
            self._success.labels(*labels, reason).inc()


class _StateCollector(StateCollector):
    """Reads the supervisor's snapshot at each scrape."""

    def __init__(self, snapshot: Callable[[], ManagerSnapshot], completed: Mapping[str, int]) -> None:
        self._snapshot = snapshot
        self._completed = completed

    def collect(self) -> Iterable[Metric]:
        """One family per row of the table, one sample per model."""
        models = self._snapshot().models
        name, text = "lmdeploy:num_requests_completed", "Requests that have ended."
        finished = GaugeMetricFamily(name, text, labels=_LABELS)
        for name, count in self._completed.items():
            finished.add_metric((name, _ENGINE), count)
        yield finished
        for name, text, value in _GAUGES:
            family = GaugeMetricFamily(f"lmdeploy:{name}", text, labels=_LABELS)
            for model in models:
                family.add_metric((model.name, _ENGINE), float(value(model)))
            yield family
        yield _step_sizes(models)
        config = InfoMetricFamily("lmdeploy:backend_config", "What runs here.", labels=_LABELS)
        for model in models:
            cells = str(model.stats.cells_total)
            facts = {"backend": "llama.cpp", "version": __version__, "cache_tokens": cells}
            config.add_metric((model.name, _ENGINE), facts)
        yield config


def _step_sizes(models: Iterable[ModelStatus]) -> HistogramMetricFamily:
    family = HistogramMetricFamily("lmdeploy:iteration_tokens_total", "Tokens of a step.", labels=_LABELS)
    for model in models:
        steps = itertools.accumulate(model.stats.step_sizes or [0] * (len(STEP_SIZES) + 1))
        bounds = [*(str(float(size)) for size in STEP_SIZES), "+Inf"]
        buckets = list(zip(bounds, map(float, steps), strict=True))
        family.add_metric((model.name, _ENGINE), buckets, float(model.stats.computed_tokens_total))
    return family
