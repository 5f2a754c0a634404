"""Adds, renews, removes and ends nodes, with the bodies of `/nodes/*` as LMDeploy's proxy reads and writes them."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec

from jan_serve.errors import JanServeError
from jan_serve.fleet.fleet import MAX_NODES, Fleet
from jan_serve.fleet.node import Node, NodeState, Role
from jan_serve.http.errors import http_problem
from jan_serve.proxy.distserve import PairLinks
from jan_serve.proxy.fleet_file import FleetFile, NodeRecord
from jan_serve.proxy.probes import MAX_MODELS, ListedModels, Probes, is_model_name, models_of
from jan_serve.proxy.problems import node_failed, wrong_field
from jan_serve.proxy.request_facts import MAX_MODEL
from jan_serve.proxy.upstream.connection import Failure, NodeFailure
from jan_serve.proxy.upstream.node_address import BadUrl, NodeUrl, known_url, parse_node_url
from jan_serve.proxy.upstream.node_client import NodeClient, OutsideNetworks

MAX_SPEED: Final = 1e9


class NodeRequest(msgspec.Struct, frozen=True):
    """models: empty if the node is to be asked. speed: None if unknown."""

    url: NodeUrl
    role: Role
    models: tuple[str, ...]
    speed: float | None


def read_url(content: Any, caller: str | None) -> NodeUrl:
    """The `url` of a body. Raises HttpError (422)."""
    if not isinstance(content, dict):
        raise wrong_field("url", "the body must be a JSON object with a url")
    text = cast(dict[str, Any], content).get("url")
    if not isinstance(text, str):
        raise wrong_field("url", "must be a text" if "url" in content else "is missing")
    return url_of_text(text, caller)


def url_of_text(text: str, caller: str | None) -> NodeUrl:
    try:
        return parse_node_url(text, caller)
    except BadUrl as error:
        raise wrong_field("url", str(error)) from None


def read_node(content: Any, caller: str | None) -> NodeRequest:
    """The body of `/nodes/add`. `unfinished` and `latency` are ignored: the proxy counts itself. Raises HttpError."""
    url = read_url(content, caller)
    status = cast(dict[str, Any], content).get("status")
    if status is None:
        return NodeRequest(url, Role.HYBRID, (), None)
    if not isinstance(status, dict):
        raise wrong_field("status", "must be an object or null")
    fields = cast(dict[str, Any], status)
    role, models = _role(fields.get("role", 1)), _models(fields.get("models"))
    return NodeRequest(url, role, models, _speed(fields.get("speed")))


def _role(value: object) -> Role:
    if isinstance(value, bool) or value not in (1, 2, 3):
        raise wrong_field("status.role", "must be 1 (hybrid), 2 (prefill) or 3 (decode)")
    return Role(cast(int, value))


def _models(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or len(cast(list[object], value)) > MAX_MODELS:
        raise wrong_field("status.models", f"must be a list of at most {MAX_MODELS} names")
    names = cast(list[object], value)
    if not all(is_model_name(name) for name in names):
        raise wrong_field(
            "status.models", f"each name must be a text of 1 to {MAX_MODEL} printable characters"
        )
    return tuple(dict.fromkeys(cast(list[str], names)))


def _speed(value: object) -> float | None:
    """LMDeploy's documentation uses -1 for a speed that is not known."""
    if value is None or (value == -1 and not isinstance(value, bool)):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_SPEED:
        raise wrong_field(
            "status.speed", f"must be a number above 0, at most {MAX_SPEED:g}; -1 and null are unknown"
        )
    return float(value)


def status_body(node: Node) -> dict[str, Any]:
    """A node's entry in `/nodes/status`."""
    speed = node.speed
    return {
        "role": int(node.role),
        "models": list(node.models),
        "unfinished": node.in_flight,
        "latency": [round(seconds, 6) for seconds in node.latencies],
        "speed": int(speed) if speed is not None and math.floor(speed) == speed else speed,
    }


logger = logging.getLogger(__name__)

TERMINATE_S: Final = 10.0
_ADDS_AT_ONCE: Final = 64


@dataclass(eq=False, repr=False)
class NodeRegistry:
    """Event loop only. file: None if nodes are not remembered."""

    fleet: Fleet
    client: NodeClient
    links: PairLinks
    clock: Callable[[], float]
    file: FleetFile | None
    probes: Probes | None = field(init=False, default=None)
    _fixed: set[str] = field(init=False, default_factory=set[str])
    _turns: asyncio.Semaphore = field(init=False, default_factory=lambda: asyncio.Semaphore(_ADDS_AT_ONCE))
    _background: set[asyncio.Task[None]] = field(init=False, default_factory=set[asyncio.Task[None]])

    def stays(self, node: Node) -> bool:
        """Whether the node was named at the start."""
        return node.url in self._fixed

    def restore(self, records: Iterable[NodeRecord], urls: Sequence[str]) -> None:
        """Nodes of the file, and those named at the start. They join when they answer. Raises HttpError for a URL."""
        for record in records:
            try:
                url = url_of_text(record.url, None)
                node = self._join(url, Role(record.role), tuple(record.models), record.speed)
                node.declares = record.declares
            except (ValueError, JanServeError) as error:
                logger.warning("a remembered node is left out: %s", error)
        for text in urls:
            url = url_of_text(text, None)
            self._fixed.add(str(url))
            if self.fleet.find(str(url)) is None:
                self._join(url, Role.HYBRID, (), None)

    async def add(self, wanted: NodeRequest) -> Node:
        """Add a node that answers, or renew one. Raises HttpError.

        A node that names its models and takes no connection yet is added too: LMDeploy's servers register before they
        listen. It gets requests once it answers.
        """
        url = str(wanted.url)
        node = self.fleet.find(url)
        if node is None and len(self.fleet) >= MAX_NODES:
            message = f"The proxy has {MAX_NODES} nodes, its limit: remove one first."
            raise http_problem(HTTPStatus.TOO_MANY_REQUESTS, "too_many_nodes", message)
        if node is not None:
            if node.role is not wanted.role and self.links.has(node):
                role = node.role.name.lower()
                message = f"The node is linked as a {role} node: remove it before it changes its role."
                raise http_problem(HTTPStatus.CONFLICT, "node_is_linked", message)
            known = node.state is NodeState.HEALTHY and node.role is wanted.role
            if known and wanted.models in ((), node.models):
                models, aliases = node.models, node.aliases
                return self.fleet.add(url, node.role, models, wanted.speed, self.clock(), aliases=aliases)
        async with self._turns:
            models, state, reason = await self._ask(wanted)
        now, names = self.clock(), models.names
        node = self.fleet.add(url, wanted.role, names, wanted.speed, now, aliases=models.aliases)
        node.probe_failures, node.declares, node.listed_s = 0, bool(wanted.models), now
        self.fleet.set_state(node, state, reason)
        self._watch(node)
        return node

    async def _ask(self, wanted: NodeRequest) -> tuple[ListedModels, NodeState, str]:
        try:
            listed = await models_of(self.client, wanted.url)
        except OutsideNetworks as failure:
            message = f"The node {wanted.url} {failure.message}."
            raise http_problem(HTTPStatus.FORBIDDEN, "forbidden_node", message) from None
        except NodeFailure as failure:
            if wanted.models and failure.kind is Failure.CONNECT:
                return ListedModels(wanted.models), NodeState.JOINING, failure.message
            # The caller waited for the proxy, not the node.
            raise node_failed(str(wanted.url), NodeFailure(Failure.PROTOCOL, failure.message)) from None
        if missing := [name for name in wanted.models if name not in listed.names]:
            message = f"The node {wanted.url} does not list the model {missing[0][:200]!r} in /v1/models."
            raise http_problem(HTTPStatus.BAD_REQUEST, "model_not_found", message)
        return ListedModels(wanted.models) if wanted.models else listed, NodeState.HEALTHY, ""

    def remove(self, url: NodeUrl) -> None:
        """No new requests for it; running ones end in peace. A node that is not there is removed already."""
        node = self.fleet.find(str(url))
        if node is not None:
            self._fixed.discard(node.url)
            self._forget(node)

    async def terminate(self, url: NodeUrl) -> None:
        """Ask a node to end. It gets no new requests, and stays listed until it is gone. Raises HttpError."""
        node = self.fleet.find(str(url))
        if node is None:
            raise http_problem(HTTPStatus.NOT_FOUND, "node_not_found", f"There is no node {url}.")
        before = node.state, node.reason
        assert self.probes is not None
        self.probes.ending.add(node)
        self.fleet.set_state(node, NodeState.DRAINING, "it was asked to end")
        try:
            status, content = await self.client.fetch_json(url, "GET", "/terminate", limit_s=TERMINATE_S)
            if status != HTTPStatus.OK:
                raise NodeFailure(Failure.PROTOCOL, f"refuses to end with status {status}{_said(content)}")
        except BaseException as error:  # nothing but the node's end would undo it
            self.probes.ending.discard(node)
            self.fleet.set_state(node, *before)
            if isinstance(error, NodeFailure):
                raise node_failed(node.name, error) from None
            raise
        self.probes.soon(node)

    def ended(self, node: Node) -> None:
        """A node is gone for good."""
        logger.info("node %s is forgotten", node.name)
        self._forget(node)

    def _join(self, url: NodeUrl, role: Role, models: tuple[str, ...], speed: float | None) -> Node:
        node = self.fleet.add(str(url), role, models, speed, self.clock())
        self._watch(node)
        return node

    def _watch(self, node: Node) -> None:
        assert self.probes is not None
        self.probes.watch(node)
        self.save()

    def _forget(self, node: Node) -> None:
        assert self.probes is not None
        self.fleet.remove(node.url)
        self.probes.unwatch(node)
        if self.links.has(node):
            task = asyncio.ensure_future(self.links.drop(node))
            self._background.add(task)
            task.add_done_callback(self._background.discard)
        known_url.cache_clear()
        self.save()

    def save(self) -> None:
        if self.file is not None:
            self.file.save(self.fleet)


def _said(content: Any) -> str:
    """The message of an error body, OpenAI's or a flat one."""
    fields = cast(dict[str, Any], content) if isinstance(content, dict) else {}
    error = fields.get("error")
    if isinstance(error, dict):
        fields = cast(dict[str, Any], error)
    message = fields.get("message")
    return f": {message[:500]}" if isinstance(message, str) else ""
