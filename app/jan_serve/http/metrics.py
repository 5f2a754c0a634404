"""Prometheus metrics of one application, in its own registry. No label value comes from a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from jan_serve.core.models import ManagerSnapshot
from jan_serve.http.errors import CLIENT_CLOSED
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.request_record import RequestRecord, RequestWatcher

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TOKENS_PER_SECOND: Final = (1, 2, 5, 10, 20, 40, 60, 80, 100, 150, 200, 400)


RequestObserver = Callable[[int, RequestRecord], None]
"""Called with the status and the record of each finished request; the status is 499 if its client left."""


def page_headers() -> dict[str, str]:
    """Those of a page of metrics."""
    # A server starts without this module: it brings an HTTP server of its own.
    from prometheus_client.exposition import CONTENT_TYPE_LATEST

    return {"content-type": CONTENT_TYPE_LATEST}


class RequestMetrics(RequestWatcher):
    """Counts finished requests by route. collector: what is read at each scrape. first: the part of an answer until
    which time is measured too."""

    def __init__(self, collector: Collector, *, first: str, first_text: str) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(collector)
        self._requests = self._counter("requests", "Finished requests.", "route", "status")
        self._duration = self._histogram(
            "request_duration_seconds", "From the arrival of a request to the end of its answer.", "route"
        )
        self._first = self._histogram(f"time_to_first_{first}_seconds", first_text)

    def end(self, route: str, status: int, record: RequestRecord) -> None:
        status = CLIENT_CLOSED if record.cancelled else status
        self._requests.labels(route, str(status)).inc()
        self._duration.labels(route).observe(record.elapsed_s())
        if record.first_token_s is not None:
            self._first.observe(record.first_token_s)

    def page(self) -> bytes:
        from prometheus_client.exposition import generate_latest

        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"jan_serve_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS
    ) -> Histogram:
        return Histogram(f"jan_serve_{name}", text, labels, registry=self.registry, buckets=buckets)


class Metrics(RequestMetrics):
    """A server's: reads the state of models at each scrape. observers: of dialects, with series in `registry`."""

    def __init__(self, snapshot: Callable[[], ManagerSnapshot], lifecycle: Lifecycle) -> None:
        text = "From the arrival of a request to its first text."
        super().__init__(_EngineCollector(snapshot, lifecycle), first="token", first_text=text)
        self.observers: list[RequestObserver] = []
        self._cancelled = self._counter("cancelled", "Requests whose client left before the end.")
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of finished requests.")
        self._cached_tokens = self._counter("cached_tokens", "Prompt tokens that were not computed again.")
        self._completion_tokens = self._counter(
            "completion_tokens", "Tokens generated for finished requests."
        )
        self._queue = self._histogram("queue_duration_seconds", "Waiting in the engine.")
        text = "Generated tokens of a request over its decode time."
        self._speed = self._histogram("tokens_per_second", text, buckets=_TOKENS_PER_SECOND)

    def end(self, route: str, status: int, record: RequestRecord) -> None:
        super().end(route, status, record)
        if record.cancelled:
            self._cancelled.inc()
        self._prompt_tokens.inc(record.prompt_tokens)
        self._cached_tokens.inc(record.cached_tokens)
        self._completion_tokens.inc(record.completion_tokens)
        if record.queue_s is not None:
            self._queue.observe(record.queue_s)
        if record.decode_s and record.completion_tokens:
            self._speed.observe(record.completion_tokens / record.decode_s)
        for observer in self.observers:
            observer(CLIENT_CLOSED if record.cancelled else status, record)


_MODEL_GAUGES: Final = (
    ("ready", "1 while the model is loaded.", "is_ready"),
    ("leases", "Requests that hold the model.", "leases"),
    ("waiting", "Requests that wait for the model.", "waiting"),
)
_MODEL_COUNTERS: Final = (
    ("loads", "Times the model was loaded.", "loads"),
    ("crashes", "Times its worker crashed.", "crashes"),
    ("stalls", "Times its worker was ended for a stall.", "stalls"),
    ("retries", "Requests that went on in another worker.", "retries"),
)
_ENGINE_GAUGES: Final = (
    ("running", "Sequences in the batch.", "running"),
    ("waiting", "Sequences that wait for a place in the batch.", "waiting"),
    ("cells_used", "KV cells in use.", "cells_used"),
    ("cells", "KV cells.", "cells_total"),
    ("cached_sequences", "Finished sequences kept as prefix cache.", "cached_sequences"),
    ("states", "States of sequences that are kept for other servers, or came from them.", "states"),
    ("cache_ram_bytes", "Memory of sequences that left the KV cache.", "cache_ram_bytes"),
    ("resident_bytes", "Resident memory of the worker.", "rss_bytes"),
)
_ENGINE_COUNTERS: Final = (
    ("steps", "Engine steps since the worker started.", "steps"),
    (
        "computed_tokens",
        "Tokens computed since the worker started, of prompts and answers.",
        "computed_tokens",
    ),
    ("cached_tokens", "Tokens of prompts that did not have to be computed.", "cached_tokens"),
    ("shared_tokens", "Tokens of prompts that a running sequence had computed.", "shared_tokens"),
    ("passed_sequences", "Times that a waiting sequence was passed by one with a cached prefix.", "passed"),
    ("made_way_sequences", "Finished sequences that went to RAM for running ones.", "made_way"),
    ("stream_pauses", "Pauses of running answers in which prompts were read.", "stream_pauses"),
    ("mixed_steps", "Steps that computed prompts and running answers together.", "mixed_steps"),
    ("forced_tokens", "Tokens that a grammar left no choice about.", "forced_tokens"),
    ("drafted_tokens", "Tokens that were guessed.", "drafted"),
    ("accepted_tokens", "Guessed tokens that were right.", "accepted"),
    (
        "model_drafted_tokens",
        "Of the guessed tokens, those of a draft model or of the model's own head (MTP).",
        "drafted_by_model",
    ),
    ("model_accepted_tokens", "Of those, the ones that were right.", "accepted_by_model"),
    ("saved_sequences", "Sequences that went from the KV cache to RAM.", "saved"),
    ("restored_sequences", "Sequences that came back from RAM or disk.", "restored"),
    ("encoded_media", "Parts of images and sounds that were encoded.", "media_encoded"),
    ("reused_media", "Parts of images and sounds whose embeddings were still there.", "media_reused"),
    ("generated_tokens", "Tokens generated since the worker started.", "generated_tokens"),
)
"""Name, help, and the attribute: of a ModelStatus, and of its EngineStats. Those of counters end with `_total`."""


class StateCollector(Collector):
    """What is read at each scrape."""

    def describe(self) -> Iterable[Metric]:
        """Empty, so that the registry does not collect at registration."""
        return ()


def single(name: str, text: str, value: float) -> Metric:
    family = GaugeMetricFamily(f"jan_serve_{name}", text)
    family.add_metric((), value)
    return family


def by_label(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    text: str,
    label: str,
    values: Iterable[tuple[str, float]],
) -> Metric:
    family = kind(f"jan_serve_{name}", text, labels=(label,))
    for of, value in values:
        family.add_metric((of,), float(value))
    return family


class _EngineCollector(StateCollector):
    """Reads the supervisor's snapshot."""

    def __init__(self, snapshot: Callable[[], ManagerSnapshot], lifecycle: Lifecycle) -> None:
        self._snapshot = snapshot
        self._lifecycle = lifecycle

    def collect(self) -> Iterable[Metric]:
        models = self._snapshot().models
        yield single("open_requests", "Requests whose answer has not ended.", self._lifecycle.open_requests)
        for kind, prefix, table, attribute in (
            (GaugeMetricFamily, "model", _MODEL_GAUGES, "{}"),
            (GaugeMetricFamily, "engine", _ENGINE_GAUGES, "stats.{}"),
            (CounterMetricFamily, "model", _MODEL_COUNTERS, "{}_total"),
            (CounterMetricFamily, "engine", _ENGINE_COUNTERS, "stats.{}_total"),
        ):
            for name, text, of in table:
                value = attrgetter(attribute.format(of))
                values = ((model.name, value(model)) for model in models)
                yield by_label(kind, f"{prefix}_{name}", text, "model", values)
