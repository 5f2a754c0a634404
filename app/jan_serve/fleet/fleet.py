"""All nodes of a proxy: who is there, and which one gets the next request."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from random import Random
from typing import Final

from jan_serve.errors import ModelNotFound, Unavailable
from jan_serve.fleet.assignment import Assignment
from jan_serve.fleet.breaker import Breaker
from jan_serve.fleet.node import Node, NodeState, Role, WorkRate
from jan_serve.fleet.pool import Pool
from jan_serve.fleet.prefixes import NO_KEYS, FleetPrefixIndex, PromptKeys
from jan_serve.fleet.strategies import Candidates, Strategy, StrategyName, strategy

MAX_NODES: Final = 10_000
RETRY_AFTER_S: Final = 5.0
_CLOCK_S: Final = 1.0
"""Seconds by which two machines may differ within a pause between probes."""


class FleetFull(Unavailable, code="too_many_nodes"):
    """The proxy has no place for another node."""


class Fleet:
    """Event loop only. `now` is seconds of a monotonic clock."""

    def __init__(self, name: StrategyName, rng: Random, index: FleetPrefixIndex | None = None) -> None:
        self.index = FleetPrefixIndex() if index is None else index
        self._rng = rng
        self._choose = strategy(name, self.index)
        self._average = WorkRate()
        self._nodes: dict[str, Node] = {}
        self._pools: dict[tuple[str, Role], Pool] = {}
        self._any: dict[Role, Pool] = {role: Pool() for role in Role}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def use(self, choose: Strategy) -> None:
        """Choose nodes in another way from now on."""
        self._choose = choose

    def find(self, url: str) -> Node | None:
        return self._nodes.get(url)

    # Membership

    def add(
        self,
        url: str,
        role: Role,
        models: Iterable[str],
        speed: float | None,
        now: float,
        *,
        aliases: Iterable[str] = (),
    ) -> Node:
        """Add a node, or renew one: counters and what it has cached stay. Raises FleetFull."""
        names = tuple(dict.fromkeys(models))
        further = tuple(name for name in dict.fromkeys(aliases) if name not in names)
        node = self._nodes.get(url)
        if node is None:
            if len(self._nodes) >= MAX_NODES:
                raise FleetFull(f"The proxy has {MAX_NODES} nodes, its limit: remove one first.")
            node = Node(url, role, (), speed, Breaker(self._rng), WorkRate(self._average, speed or 1.0))
            self._nodes[url] = node
            self._any[role].add(node)
        elif node.role is not role:
            self._serve(node, (), ())
            self._any[node.role].remove(node)
            node.role = role
            self._any[role].add(node)
        if (names, further) != (node.models, node.aliases):
            self._serve(node, names, further)
        node.speed = speed
        node.seen_s = now
        return node

    def remove(self, url: str) -> Node | None:
        """Its running requests end in peace; it gets no new ones. None if there is no such node."""
        node = self._nodes.pop(url, None)
        if node is not None:
            self._serve(node, (), ())
            self._any[node.role].remove(node)
            node.forget_cache()
        return node

    def set_state(self, node: Node, state: NodeState, reason: str = "") -> None:
        node.state, node.reason = state, reason

    def note_start(self, node: Node, pid: int | None, uptime_s: float | None, now: float) -> bool:
        """Which start of the server this is; None if it does not say. Whether it is another one than before: then what
        is known about the former one is void. A clock of the node that is set back is no start."""
        if pid is None or uptime_s is None:
            return False
        is_younger = uptime_s < node.uptime_s and uptime_s <= now - node.uptime_at_s + _CLOCK_S
        is_new = node.pid is not None and (node.pid != pid or is_younger)
        node.pid, node.uptime_s, node.uptime_at_s = pid, uptime_s, now
        if is_new:
            node.breaker.reset()
            node.forget_cache()
        return is_new

    def _serve(self, node: Node, models: tuple[str, ...], aliases: tuple[str, ...]) -> None:
        """Move the node to the pools of these names."""
        for name in (*node.models, *node.aliases):
            pool = self._pools[name, node.role]
            pool.remove(node)
            if not len(pool):
                del self._pools[name, node.role]
        node.models, node.aliases = models, aliases
        for name in (*models, *aliases):
            self._pools.setdefault((name, node.role), Pool()).add(node)

    # Choice

    def models(self, now: float) -> list[str]:
        """Every model once; one that no node can serve now is left out unless no model could be served."""
        names = self._names()
        served = [name for name in names if any(node.accepts(now) for node in self._serving(name))]
        return served or names

    def _names(self) -> list[str]:
        names = dict.fromkeys(name for name, _ in self._pools)
        return [name for name in names if any(name in node.models for node in self._serving(name))]

    def has_model(self, model: str) -> bool:
        return any((model, role) in self._pools for role in Role)

    def has_other(self, model: str | None, role: Role, tried: Collection[Node], now: float) -> bool:
        """Whether another node takes the request. Linear in the nodes of the model."""
        return any(node.accepts(now) and node not in tried for node in self._pool(model, role))

    def assign(
        self,
        model: str | None,
        keys: PromptKeys = NO_KEYS,
        *,
        now: float,
        role: Role = Role.HYBRID,
        streamed: bool = False,
        tried: Collection[Node] = (),
        preferred: Node | None = None,
    ) -> Assignment:
        """Choose a node and count the request there, in one step. Raises as `choose`."""
        node = self.choose(model, keys, now=now, role=role, tried=tried, preferred=preferred)
        return Assignment(node, keys, self.index, now, streamed=streamed)

    def choose(
        self,
        model: str | None,
        keys: PromptKeys = NO_KEYS,
        *,
        now: float,
        role: Role = Role.HYBRID,
        tried: Collection[Node] = (),
        preferred: Node | None = None,
    ) -> Node:
        """The node for a request. model: None for requests that name none: any node. tried: nodes where this request
        failed. preferred: taken if it accepts requests. Raises ModelNotFound, and Unavailable with the reason if no
        node is left."""
        pool = self._pool(model, role)
        if not len(pool) and model is not None and not self.has_model(model):
            raise ModelNotFound(model, self._names())
        candidates = Candidates(pool, keys, tried, now, self._rng)
        if preferred is not None and preferred in pool and candidates.accepts(preferred):
            node = preferred
        else:
            node = self._choose(candidates) or self._least_bad(candidates)
        if node is None:
            raise self._unavailable(model, role, pool, now)
        return node

    def assign_to(self, node: Node, keys: PromptKeys, *, now: float, streamed: bool = False) -> Assignment:
        """Count a request that can only go to this node."""
        return Assignment(node, keys, self.index, now, streamed=streamed)

    def _pool(self, model: str | None, role: Role) -> Pool:
        return self._any[role] if model is None else self._pools.get((model, role), _EMPTY)

    def _serving(self, model: str) -> Iterator[Node]:
        return (node for role in Role for node in self._pools.get((model, role), ()))

    def _least_bad(self, candidates: Candidates) -> Node | None:
        """Fail open: with all breakers open, the one that closes first. A guess is better than a certain refusal."""
        healthy = [node for node in candidates.pool if node.state is NodeState.HEALTHY]
        nodes = [node for node in healthy if node not in candidates.tried]
        return min(nodes, key=lambda node: node.breaker.opens_in_s(candidates.now), default=None)

    def _unavailable(self, model: str | None, role: Role, pool: Pool, now: float) -> Unavailable:
        what = "any request" if model is None else f"the model {model!r}"
        kind = "" if role is Role.HYBRID else f"{role.name.lower()} "
        if not len(pool):
            message = f"No {kind}node serves {what}. `jan-serve serve --proxy-url` adds one."
        else:
            reasons = [f"{node.name} is {why_not(node, now)}" for node in islice(pool, 3)]
            more = f", and {len(pool) - 3} more" if len(pool) > 3 else ""
            message = f"No {kind}node can take {what} now: {'; '.join(reasons)}{more}."
        return Unavailable(message, retry_after=RETRY_AFTER_S)


def why_not(node: Node, now: float) -> str:
    """Why a node gets no requests; `healthy` if it gets some."""
    if node.state is not NodeState.HEALTHY:
        return f"{node.state.value}: {node.reason}" if node.reason else node.state.value
    if not node.breaker.admits(now):
        return f"paused for {node.breaker.opens_in_s(now):.0f} s after failures"
    return "healthy"


_EMPTY: Final = Pool()
