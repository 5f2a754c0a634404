"""Prometheus metrics of the proxy. Labels are routes and nodes, never anything of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Node, NodeState
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.metrics import RequestMetrics, StateCollector, by_label, single
from jan_serve.proxy.forwarding import ForwardCounts


class ProxyMetrics(RequestMetrics):
    """A proxy's: the state of nodes is read at each scrape."""

    def __init__(
        self, fleet: Fleet, counts: ForwardCounts, lifecycle: Lifecycle, clock: Callable[[], float]
    ) -> None:
        text = "From the arrival of a request to the first byte of a node's answer."
        super().__init__(_FleetCollector(fleet, counts, lifecycle, clock), first="byte", first_text=text)


_COUNTS: Final[tuple[tuple[str, str, Callable[[ForwardCounts], int]], ...]] = (
    ("retries", "Requests that were sent to another node.", lambda counts: counts.retries),
    ("failed", "Requests that no node answered.", lambda counts: counts.exhausted),
    ("moved", "Streams that went on at another node.", lambda counts: counts.moved),
    ("broken", "Answers that broke after they had begun.", lambda counts: counts.broken),
)
_NODE_GAUGES: Final[tuple[tuple[str, str, Callable[[Node, float], float]], ...]] = (
    ("node_routable", "1 while the node gets requests.", lambda node, now: node.accepts(now)),
    ("node_open_requests", "Requests of this proxy at the node.", lambda node, _: node.in_flight),
    ("node_other_requests", "Requests of others at the node.", lambda node, _: node.others),
    (
        "node_pending_tokens",
        "Prompts that wait for their answer, by estimate.",
        lambda node, now: node.pending_tokens,
    ),
    ("node_prefill_speed", "Prompt tokens a second, as observed.", lambda node, now: node.rate.tokens_per_s),
)
_NODE_COUNTERS: Final[tuple[tuple[str, str, Callable[[Node, float], float]], ...]] = (
    ("node_requests", "Requests sent to the node.", lambda node, _: node.requests),
    ("node_failures", "Requests that the node did not answer.", lambda node, _: node.failures),
    ("node_prompt_tokens", "Prompt tokens, as the node reports them.", lambda node, _: node.prompt_tokens),
    ("node_cached_tokens", "Prompt tokens that the node had cached.", lambda node, _: node.cached_tokens),
)


@dataclass(eq=False, repr=False)
class _FleetCollector(StateCollector):
    fleet: Fleet
    counts: ForwardCounts
    lifecycle: Lifecycle
    clock: Callable[[], float]

    def collect(self) -> Iterable[Metric]:
        now = self.clock()
        yield single("open_requests", "Requests whose answer has not ended.", self.lifecycle.open_requests)
        yield single("prefix_entries", "Prefixes in the index.", len(self.fleet.index))
        states = ((state.value, sum(node.state is state for node in self.fleet)) for state in NodeState)
        yield by_label(GaugeMetricFamily, "nodes", "Nodes by state.", "state", states)
        for name, text, count in _COUNTS:
            counter = CounterMetricFamily(f"jan_serve_proxy_{name}", text)
            counter.add_metric((), count(self.counts))
            yield counter
        for kind, table in ((GaugeMetricFamily, _NODE_GAUGES), (CounterMetricFamily, _NODE_COUNTERS)):
            for name, text, value in table:
                values = ((node.url, value(node, now)) for node in self.fleet)
                yield by_label(kind, name, text, "node", values)
