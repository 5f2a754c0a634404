"""The proxy's own routes: LMDeploy's node management and list of models, health, metrics, the nodes in detail."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from jan_serve import __version__
from jan_serve.core.hosts import address_of
from jan_serve.dialects.shared.lmdeploy_forms import permitted_card
from jan_serve.errors import ModelNotFound
from jan_serve.fleet.fleet import Fleet, why_not
from jan_serve.fleet.node import Node, NodeState, hit_rate
from jan_serve.http.errors import HttpError, http_problem
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.replies import json_reply
from jan_serve.http.strict_json import JsonReader
from jan_serve.proxy.distserve import PairLinks
from jan_serve.proxy.metrics import ProxyMetrics
from jan_serve.proxy.node_registry import NodeRegistry, read_node, read_url, status_body, url_of_text
from jan_serve.proxy.relay_headers import NODE
from jan_serve.proxy.settings import ProxySettings
from jan_serve.proxy.upstream.node_address import known_url

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(eq=False, repr=False)
class Handlers:
    """Lives on the event loop only."""

    settings: ProxySettings
    fleet: Fleet
    registry: NodeRegistry
    links: PairLinks
    metrics: ProxyMetrics
    lifecycle: Lifecycle
    reader: JsonReader
    clock: Callable[[], float]
    _created: int = field(init=False, default_factory=lambda: int(time.time()))

    @property
    def table(self) -> dict[str, dict[str, Handler]]:
        """The handlers by path and method."""
        return {
            "/nodes/status": {"GET": self.nodes_status},
            "/nodes/add": {"POST": self.add},
            "/nodes/remove": {"POST": self.remove},
            "/nodes/terminate": {"POST": self.terminate},
            "/nodes/terminate_all": {"GET": self.terminate_all},
            "/v1/models": {"GET": self.models},
            "/lmdeploy/v1/models": {"GET": self.models},
            "/distserve/connection_warmup": {"POST": self.warm_up},
            "/distserve/gc": {"POST": self.collect_garbage},
            "/extras/nodes": {"GET": self.nodes},
            "/health": {"GET": self.health},
            "/ready": {"GET": self.ready},
            "/metrics": {"GET": self.metrics_page},
            "/models": {"GET": self.page_models},
        }

    async def nodes_status(self, request: Request) -> Response:
        return json_reply({node.url: status_body(node) for node in self.fleet})

    async def add(self, request: Request) -> Response:
        node = await self.registry.add(read_node(await self._json(request), caller_of(request)))
        return json_reply("Added successfully", headers={NODE.decode(): node.name})

    async def remove(self, request: Request) -> Response:
        """The URL is in the body, or in the query as LMDeploy's documentation shows it."""
        named = request.query_params.get("node_url")
        if named is not None and not await request.body():
            url = url_of_text(named, caller_of(request))
        else:
            url = read_url(await self._json(request), caller_of(request))
        self.registry.remove(url)
        return json_reply("Deleted successfully")

    async def terminate(self, request: Request) -> Response:
        await self.registry.terminate(read_url(await self._json(request), caller_of(request)))
        return json_reply("Terminated successfully")

    async def terminate_all(self, request: Request) -> Response:
        headers = request.headers
        if "origin" in headers or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise http_problem(HTTPStatus.FORBIDDEN, "forbidden_origin", "Web pages may not end the nodes.")
        failed: list[str] = []
        for node in list(self.fleet):
            try:
                await self.registry.terminate(known_url(node.url))
            except HttpError as error:
                failed.append(error.problem.message)
        if failed:
            message = f"{len(failed)} nodes were not ended. {' '.join(failed[:10])}"
            raise http_problem(HTTPStatus.BAD_GATEWAY, "node_failed", message)
        return json_reply("All nodes terminated successfully")

    async def models(self, request: Request) -> Response:
        cards = [permitted_card(name, self._created) for name in self.fleet.models(self.clock())]
        return json_reply({"object": "list", "data": cards})

    async def model(self, name: str) -> Response:
        if not self.fleet.has_model(name):
            raise ModelNotFound(name)
        return json_reply(permitted_card(name, self._created))

    async def page_models(self, request: Request) -> Response:
        """The models in the form that the web page reads, where nodes have no figures of their own."""
        rows = [{"id": name, **_PAGE_MODEL} for name in self.fleet.models(self.clock())]
        return json_reply({"object": "list", "data": rows})

    async def warm_up(self, request: Request) -> Response:
        await self.links.connect_all(self.fleet)
        return json_reply({"SUCCESS": True})

    async def collect_garbage(self, request: Request) -> Response:
        return json_reply({"SUCCESS": True, "freed": await self.links.free_lost()})

    async def health(self, request: Request) -> Response:
        """200 while the proxy works, 503 while it drains; in the form of `jan-serve serve`."""
        draining = self.lifecycle.draining
        routable = any(node.accepts(self.clock()) for node in self.fleet)
        state = "draining" if draining else "ready" if routable else "degraded"
        body: dict[str, Any] = {
            "status": "draining" if draining else "ok",
            "state": state,
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": round(self.lifecycle.uptime_s, 3),
            "open_requests": self.lifecycle.open_requests,
            "models": [],
            "nodes": len(self.fleet),
        }
        return json_reply(body, HTTPStatus.SERVICE_UNAVAILABLE if draining else HTTPStatus.OK)

    async def ready(self, request: Request) -> Response:
        now = self.clock()
        if any(node.accepts(now) for node in self.fleet):
            return json_reply({"ready": True, "reason": None})
        reason = "there is no node" if not len(self.fleet) else "no node can take requests"
        return json_reply({"ready": False, "reason": reason}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def metrics_page(self, request: Request) -> Response:
        return Response(self.metrics.page(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def nodes(self, request: Request) -> Response:
        """Every node with its state, load, hit rate, and why it gets no requests."""
        now = self.clock()
        nodes = [self._details(node, now) for node in self.fleet]
        settings = {"strategy": self.settings.strategy, "serving": self.settings.serving}
        return json_reply({**settings, "hit_rate": hit_rate(list(self.fleet)), "nodes": nodes})

    def _details(self, node: Node, now: float) -> dict[str, Any]:
        accepts = node.accepts(now)
        rate = hit_rate([node])
        return {
            "url": node.url,
            "name": node.name,
            "role": node.role.name.lower(),
            "state": node.state.value,
            "routable": accepts,
            "reason": None if accepts else why_not(node, now),
            "breaker": node.breaker.state(now),
            "models": list(node.models),
            "open_requests": node.in_flight,
            "other_requests": node.others,
            "requests": node.requests,
            "failures": node.failures,
            "hit_rate": None if rate is None else round(rate, 4),
            "prefill_tokens_per_s": round(node.rate.tokens_per_s, 1) if node.rate.is_measured else None,
            "mean_latency_s": None if node.mean_latency_s is None else round(node.mean_latency_s, 3),
            "speed": node.speed,
            "seen_s": round(max(0.0, now - node.seen_s), 1) if node.state is not NodeState.JOINING else None,
            "fixed": self.registry.stays(node),
        }

    async def _json(self, request: Request) -> Any:
        return await self.reader.decode(await request.body())


def caller_of(request: Request) -> str | None:
    """The address of the client's connection; None if it is not an IP address."""
    host = request.client.host if request.client is not None else None
    address = address_of(host) if host is not None else None
    return None if address is None else str(address)


_PAGE_MODEL: Final[dict[str, Any]] = {
    "source": "nodes",
    "can_remove": False,
    "size_bytes": 0,
    "architecture": {"input_modalities": ["text"]},
    "status": {"value": "loaded"},
    "context_length": None,
    "meta": {},
    "running": 0,
    "queued": 0,
    "memory": None,
    "device": None,
}
"""An entry of `/models`: it can be asked, and nothing else can be done with it here."""
