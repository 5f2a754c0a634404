"""Prometheus metrics of the proxy. Labels are routes and nodes, never anything of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Node, State
from jan_serve.http.errors import CLIENT_CLOSED
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.request_record import RequestRecord
from jan_serve.proxy.forwarding import ForwardCounts

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class ProxyMetrics:
    """Counts finished requests; the state of nodes is read at each scrape."""

    def __init__(
        self, fleet: Fleet, counts: ForwardCounts, lifecycle: Lifecycle, clock: Callable[[], float]
    ) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.registry.register(_FleetCollector(fleet, counts, lifecycle, clock))
        self._requests = Counter(
            "jan_serve_requests", "Finished requests.", ("route", "status"), registry=self.registry
        )
        self._duration = Histogram(
            "jan_serve_request_duration_seconds",
            "From the arrival of a request to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._first_byte = Histogram(
            "jan_serve_time_to_first_byte_seconds",
            "From the arrival of a request to the first byte of a node's answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )

    def observe(self, route: str, status: int, record: RequestRecord) -> None:
        status = CLIENT_CLOSED if record.cancelled else status
        self._requests.labels(route, str(status)).inc()
        self._duration.labels(route).observe(record.elapsed_s())
        if record.first_token_s is not None:
            self._first_byte.observe(record.first_token_s)

    def page(self) -> bytes:
        return generate_latest(self.registry)


_COUNTS: Final[tuple[tuple[str, str, Callable[[ForwardCounts], int]], ...]] = (
    ("retries", "Requests that were sent to another node.", lambda counts: counts.retries),
    ("failed", "Requests that no node answered.", lambda counts: counts.exhausted),
    ("broken", "Answers that broke after they had begun.", lambda counts: counts.broken),
)
_NODE_GAUGES: Final[tuple[tuple[str, str, Callable[[Node, float], float]], ...]] = (
    ("node_routable", "1 while the node gets requests.", lambda node, now: node.accepts(now)),
    ("node_open_requests", "Requests of this proxy at the node.", lambda node, now: node.in_flight),
    ("node_other_requests", "Requests of others at the node.", lambda node, now: node.others),
    (
        "node_pending_tokens",
        "Prompts that wait for their answer, by estimate.",
        lambda node, now: node.pending_tokens,
    ),
    ("node_prefill_speed", "Prompt tokens a second, as observed.", lambda node, now: node.rate.tokens_per_s),
)
_NODE_COUNTERS: Final[tuple[tuple[str, str, Callable[[Node], float]], ...]] = (
    ("node_requests", "Requests sent to the node.", lambda node: node.requests),
    ("node_failures", "Requests that the node did not answer.", lambda node: node.failures),
    ("node_prompt_tokens", "Prompt tokens, as the node reports them.", lambda node: node.prompt_tokens),
    ("node_cached_tokens", "Prompt tokens that the node had cached.", lambda node: node.cached_tokens),
)


@dataclass(eq=False, repr=False)
class _FleetCollector(Collector):
    fleet: Fleet
    counts: ForwardCounts
    lifecycle: Lifecycle
    clock: Callable[[], float]

    def collect(self) -> Iterable[Metric]:
        now = self.clock()
        yield _single("open_requests", "Requests whose answer has not ended.", self.lifecycle.open_requests)
        yield _single("prefix_entries", "Prefixes in the index.", len(self.fleet.index))
        states = GaugeMetricFamily("jan_serve_nodes", "Nodes by state.", labels=("state",))
        for state in State:
            states.add_metric((state.value,), sum(node.state is state for node in self.fleet))
        yield states
        for name, help_text, count in _COUNTS:
            counter = CounterMetricFamily(f"jan_serve_proxy_{name}", help_text)
            counter.add_metric((), count(self.counts))
            yield counter
        for name, help_text, gauge in _NODE_GAUGES:
            family = GaugeMetricFamily(f"jan_serve_{name}", help_text, labels=("node",))
            for node in self.fleet:
                family.add_metric((node.url,), float(gauge(node, now)))
            yield family
        for name, help_text, value in _NODE_COUNTERS:
            family = CounterMetricFamily(f"jan_serve_{name}", help_text, labels=("node",))
            for node in self.fleet:
                family.add_metric((node.url,), float(value(node)))
            yield family

    def describe(self) -> Iterable[Metric]:
        """Empty, so that the registry does not collect at registration."""
        return ()


def _single(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"jan_serve_{name}", help_text)
    family.add_metric((), value)
    return family
