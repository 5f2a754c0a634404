"""Asks every node for its models and its health: often while it answers, soon after a failed request."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from random import Random
from typing import Any, Final, cast

import msgspec

from jan_serve.errors import JanServeError
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Node, NodeState
from jan_serve.proxy.request_facts import MAX_MODEL
from jan_serve.proxy.upstream.connection import Failure, NodeFailure
from jan_serve.proxy.upstream.node_address import NodeUrl, known_url
from jan_serve.proxy.upstream.node_client import NodeClient

DISCOVERY_S: Final = 10.0
MAX_MODELS: Final = 10_000
MAX_LIST_BYTES: Final = 8 << 20
_MAX_PID: Final = 1 << 32
_MAX_UPTIME_S: Final = 1e12
_MAX_OPEN: Final = 1 << 20
_ASLEEP: Final = frozenset({"asleep", "sleeping"})


class ListedModels(msgspec.Struct, frozen=True):
    """aliases: further names of the models."""

    names: tuple[str, ...]
    aliases: tuple[str, ...] = ()


async def models_of(client: NodeClient, url: NodeUrl) -> ListedModels:
    """What the node's `/v1/models` says. Raises NodeFailure."""
    status, content = await client.fetch_json(
        url, "GET", "/v1/models", limit_s=DISCOVERY_S, max_bytes=MAX_LIST_BYTES
    )
    if status != HTTPStatus.OK:
        hint = ": it needs a key (--node-key)" if status == HTTPStatus.UNAUTHORIZED else ""
        raise NodeFailure(Failure.PROTOCOL, f"answers /v1/models with status {status}{hint}")
    return _listed(content)


def _listed(content: Any) -> ListedModels:
    data = cast(dict[str, Any], content).get("data") if isinstance(content, dict) else None
    if not isinstance(data, list):
        raise NodeFailure(Failure.PROTOCOL, "answers /v1/models with something that is not a list of models")
    entries = cast(list[Any], data)
    if len(entries) > MAX_MODELS:
        raise NodeFailure(Failure.PROTOCOL, f"lists more than {MAX_MODELS} models")
    names: list[Any] = [cast(Any, entry).get("id") if isinstance(entry, dict) else None for entry in entries]
    if not all(map(is_model_name, names)):
        reason = f"lists a model whose id is not a text of 1 to {MAX_MODEL} printable characters"
        raise NodeFailure(Failure.PROTOCOL, reason)
    aliases = itertools.islice(itertools.chain.from_iterable(map(_aliases, entries)), MAX_MODELS)
    return ListedModels(tuple(dict.fromkeys(names)), tuple(dict.fromkeys(aliases)))


def _aliases(entry: dict[str, Any]) -> Iterator[str]:
    """Ours list them; anything else there is another server's business."""
    found = entry.get("aliases")
    return filter(is_model_name, cast(list[Any], found)) if isinstance(found, list) else iter(())


def is_model_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_MODEL and name.isprintable()


class Condition(msgspec.Struct, frozen=True):
    """A node's answer to `/health`. pid, uptime_s, open_requests: None if it does not say."""

    state: NodeState
    reason: str
    pid: int | None = None
    uptime_s: float | None = None
    open_requests: int | None = None


def _count(value: object, limit: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit else None


def _seconds(value: object) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_UPTIME_S:
        return float(value)
    return None


def condition_of(status: int, content: Any) -> Condition:
    """Read `/health` of jan-serve, LMDeploy or any other server. Raises NodeFailure for one that fails."""
    fields = cast(dict[str, Any], content) if isinstance(content, dict) else {}
    words = [word for name in ("state", "status") if isinstance(word := fields.get(name), str)]
    start = (
        _count(fields.get("pid"), _MAX_PID),
        _seconds(fields.get("uptime_s")),
        _count(fields.get("open_requests"), _MAX_OPEN),
    )
    if not _ASLEEP.isdisjoint(words):
        return Condition(NodeState.SLEEPING, "until it is woken", *start)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        word = words[0][:40] if words else "busy"
        return Condition(NodeState.DRAINING, f"it says that it is {word}", *start)
    if status == HTTPStatus.UNAUTHORIZED:
        raise NodeFailure(Failure.PROTOCOL, "refuses the proxy's key for /health (--node-key)")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise NodeFailure(Failure.PROTOCOL, f"answers /health with status {status}")
    return Condition(NodeState.HEALTHY, "", *start)  # a 404, too: not every server has this route


logger = logging.getLogger(__name__)

PROBE_S: Final = 3.0
MAX_HEALTH_BYTES: Final = 64 * 1024
MODELS_S: Final = 30.0
"""How often a node is asked for its models: people pull new ones."""
FAILURES: Final = 2
MAX_PAUSE_S: Final = 60.0
_MAX_DOUBLINGS: Final = 16
"""Most doublings of the pause: a node may fail so often that no float holds the power of two."""
JITTER: Final = 0.2
FORGET_S: Final = 24 * 3600.0
_AT_ONCE: Final = 256


async def _pause(wake: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await wake.wait()
    except TimeoutError:
        pass


@dataclass(eq=False, repr=False)
class Probes:
    """One task for each node, so that a node that hangs delays no other. Event loop only.

    gone: called with a node that was lost for a day, or that was asked to end and is lost. stays: whether a node may
    not be forgotten. leaves: called after each check of a node that is about to end, or is lost and sends nothing.
    """

    fleet: Fleet
    client: NodeClient
    clock: Callable[[], float]
    rng: Random
    interval_s: float
    gone: Callable[[Node], None]
    stays: Callable[[Node], bool]
    leaves: Callable[[Node], None] = lambda node: None
    pause: Callable[[asyncio.Event, float], Awaitable[None]] = _pause
    ending: set[Node] = field(init=False, default_factory=set[Node])
    _tasks: dict[Node, asyncio.Task[None]] = field(init=False, default_factory=dict[Node, asyncio.Task[None]])
    _wakes: dict[Node, asyncio.Event] = field(init=False, default_factory=dict[Node, asyncio.Event])
    _turns: asyncio.Semaphore = field(init=False, default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    def watch(self, node: Node) -> None:
        """Probe a node from now on, at once if it is new."""
        task = self._tasks.get(node)
        if task is None or task.done():
            self._wakes[node] = asyncio.Event()
            self._tasks[node] = asyncio.create_task(self._follow(node), name=f"probe {node.name}")

    def unwatch(self, node: Node) -> None:
        task = self._tasks.pop(node, None)
        self._wakes.pop(node, None)
        self.ending.discard(node)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def soon(self, node: Node) -> None:
        wake = self._wakes.get(node)
        if wake is not None:
            wake.set()

    def suspect(self, node: Node) -> None:
        """A request found nobody there: if the next check fails too, the node is lost."""
        if node.state is NodeState.HEALTHY:
            node.probe_failures = max(node.probe_failures, FAILURES - 1)
        self.soon(node)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, node: Node) -> None:
        wake = self._wakes[node]
        while self.fleet.find(node.url) is node:
            wake.clear()
            try:
                async with self._turns:
                    await self.probe(node)
                if node.state is NodeState.LOST and self._is_over(node):
                    self.gone(node)
                    return
            except Exception:
                # A bug of ours: the node gets its next probe all the same.
                logger.exception("cannot probe node %s", node.name)
            await self.pause(wake, self._next_s(node))

    def _next_s(self, node: Node) -> float:
        pause = self.interval_s
        if node.state is NodeState.LOST:
            doublings = min(node.probe_failures - FAILURES, _MAX_DOUBLINGS)
            pause = min(MAX_PAUSE_S, pause * 2.0**doublings)
        return pause * self.rng.uniform(1 - JITTER, 1 + JITTER)

    def _is_over(self, node: Node) -> bool:
        if node in self.ending:
            return True
        return not self.stays(node) and self.clock() - node.seen_s > FORGET_S

    async def probe(self, node: Node) -> None:
        """Ask a node once, and note how it is."""
        await self._ask(node)
        is_silent = node.state is NodeState.LOST and self.clock() - node.heard_s >= PROBE_S
        if is_silent or node.state is NodeState.DRAINING:
            self.leaves(node)

    async def _ask(self, node: Node) -> None:
        url, before = known_url(node.url), node.unanswered
        try:
            status, content = await self.client.fetch_json(
                url, "GET", "/health", limit_s=PROBE_S, max_bytes=MAX_HEALTH_BYTES
            )
            condition = condition_of(status, content)
            is_new = self.fleet.note_start(node, condition.pid, condition.uptime_s, self.clock())
            is_old = not node.declares and self.clock() - node.listed_s >= MODELS_S
            if node.state in (NodeState.JOINING, NodeState.LOST) or is_new or is_old:
                await self._check_models(node)
        except (NodeFailure, JanServeError) as failure:
            self._note_failure(node, failure.message)
            return
        node.probe_failures = 0
        node.seen_s = self.clock()
        node.note_open(condition.open_requests, min(before, node.unanswered), self.clock())
        state, reason = condition.state, condition.reason
        if node in self.ending:
            state, reason = NodeState.DRAINING, "it was asked to end"
        if state is not node.state:
            logger.info("node %s is %s %s", node.name, state.value, reason)
        self.fleet.set_state(node, state, reason)

    async def _check_models(self, node: Node) -> None:
        """What a node reported, or had before it was lost, may be out of date."""
        listed = await models_of(self.client, known_url(node.url))
        if self.fleet.find(node.url) is not node:  # removed meanwhile
            return
        node.listed_s = self.clock()
        if not node.declares:
            self.fleet.add(
                node.url, node.role, listed.names, node.speed, self.clock(), aliases=listed.aliases
            )
            return
        kept = [name for name in node.models if name in listed.names]
        if missing := [name for name in node.models if name not in listed.names]:
            logger.warning("node %s does not have %s", node.name, ", ".join(missing)[:500])
        self.fleet.add(node.url, node.role, kept, node.speed, self.clock())

    def _note_failure(self, node: Node, message: str) -> None:
        node.probe_failures += 1
        if node.state is NodeState.JOINING:
            node.reason = message
        if node.probe_failures >= FAILURES and node.state is not NodeState.LOST:
            logger.warning("node %s is lost: %s", node.name, message)
            self.fleet.set_state(node, NodeState.LOST, message)
        elif node.state is NodeState.LOST:
            node.reason = message
