"""Ways to choose a node among those of a model: LMDeploy's three, and `prefix`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import islice
from random import Random
from typing import Final, Literal, get_args

import msgspec

from jan_serve.fleet.node import Node
from jan_serve.fleet.pool import Pool
from jan_serve.fleet.prefixes import FleetPrefixIndex, PromptKeys

StrategyName = Literal["prefix", "min_expected_latency", "min_observed_latency", "random"]
STRATEGIES: Final[tuple[StrategyName, ...]] = get_args(StrategyName)

_HOLDERS: Final = 4
_DRAWN: Final = 2
_MORE: Final = 8
"""Nodes by chance, and how many more where all of these make a request wait."""
_SATURATED_S: Final = 1.0
REQUEST_TOKENS: Final = 128.0
"""What an answer that is being generated costs a prompt that waits for its turn, in prompt tokens."""
QUEUED_TOKENS: Final = 512.0
"""The same where requests wait for the end of answers."""
OTHERS_TOKENS: Final = 256.0
"""The same for a request of somebody else, which may not have begun."""
_ANEW: Final = 1.5
"""What is not cached counts for more than it takes: it delays others."""
_CROWDING_S: Final = 1.5
"""A prompt that is computed anew takes the place of others in the cache: its node counts as busy with the prompts that
came to it in so many seconds. So conversations are spread by the room that they need, not by who is idle just then."""


class Candidates(msgspec.Struct, frozen=True):
    """The nodes that a request may go to. tried: it failed there already. May be used by one choice only."""

    pool: Pool
    keys: PromptKeys
    tried: Collection[Node]
    now: float
    rng: Random

    def accepts(self, node: Node) -> bool:
        return node.accepts(self.now) and node not in self.tried

    def all(self) -> list[Node]:
        """All nodes in random order, so that ties are decided by chance. Linear in the pool."""
        nodes = [node for node in self.pool if self.accepts(node)]
        self.rng.shuffle(nodes)
        return nodes

    def drawn(self, count: int) -> list[Node]:
        """Up to `count` nodes by chance; constant in the pool."""
        found: list[Node] = []
        for _ in range(4 * count if len(self.pool) else 0):
            node = self.pool.random(self.rng)
            if self.accepts(node) and node not in found:
                found.append(node)
                if len(found) == count:
                    break
        return found


Strategy = Callable[[Candidates], Node | None]
"""None if no node accepts the request."""


def weighted_random(candidates: Candidates) -> Node | None:
    """A node by chance, in proportion to the given speeds."""
    nodes = candidates.all()
    weights = [node.weight for node in nodes]
    return candidates.rng.choices(nodes, weights)[0] if nodes else None


def min_expected_latency(candidates: Candidates) -> Node | None:
    """The fewest requests for its speed."""
    return min(candidates.all(), key=lambda node: (node.in_flight + node.others) / node.weight, default=None)


def min_observed_latency(candidates: Candidates) -> Node | None:
    """The shortest mean of its last requests. A node without any counts as the best one, so that it gets some."""
    return min(candidates.all(), key=lambda node: node.mean_latency_s or 0.0, default=None)


class LeastTimeToFirstToken:
    """The node whose answer begins first, as far as known: what it has to do before, and what it has not cached.

    Looks at holders of the longest known prefix, at two nodes by chance and at the one that the prompt's beginning
    hashes to, so the cost does not depend on the number of nodes. A holder is left when waiting for it takes longer
    than computing the prompt anew.
    """

    def __init__(self, index: FleetPrefixIndex) -> None:
        self._index = index

    def __call__(self, candidates: Candidates) -> Node | None:
        keys = candidates.keys
        holders = _some_accepting(candidates, self._index.longest(keys.keys))
        drawn = candidates.drawn(_DRAWN)
        if keys.keys:
            near = islice(candidates.pool.at(keys.keys[0]), _MORE)
            drawn.extend(islice(filter(candidates.accepts, near), 1))
        best, wait_s = self._best(candidates, [*holders, *drawn])
        if best is not None and wait_s > _SATURATED_S:
            best, _ = self._best(candidates, [best, *holders, *candidates.drawn(_MORE)], QUEUED_TOKENS)
        return best if best is not None else next(iter(candidates.all()), None)

    def _best(
        self, candidates: Candidates, nodes: Sequence[Node], request_tokens: float = REQUEST_TOKENS
    ) -> tuple[Node | None, float]:
        depths = self._index.depths(candidates.keys.keys, nodes)
        best, least_s = None, 0.0
        for node in _from_anywhere(tuple(dict.fromkeys(nodes)), candidates.rng):
            wait_s = expected_wait_s(
                node, candidates.keys, depths.get(node, 0), candidates.now, request_tokens
            )
            if best is None or wait_s < least_s:
                best, least_s = node, wait_s
        return best, least_s


def _from_anywhere(nodes: Collection[Node], rng: Random) -> list[Node]:
    """All of them, so that no place in the order is favoured."""
    ordered = list(nodes)
    start = int(rng.random() * len(ordered))
    return ordered[start:] + ordered[:start]


def _some_accepting(candidates: Candidates, holders: Collection[Node]) -> list[Node]:
    there = (node for node in _from_anywhere(holders, candidates.rng) if node in candidates.pool)
    return list(islice(filter(candidates.accepts, there), _HOLDERS))


def expected_wait_s(
    node: Node, keys: PromptKeys, depth: int, now: float, request_tokens: float = REQUEST_TOKENS
) -> float:
    """Until the first token: the prompts before this one, and what is not cached of it.

    A node that answers nobody is expected to go on so for as long again.
    """
    uncached = keys.tokens - keys.tokens_to(depth) * node.trust
    load = node.in_flight * request_tokens + node.others * OTHERS_TOKENS
    crowding = _CROWDING_S * node.demand.tokens_per_s(now) * uncached / keys.tokens if keys.tokens else 0.0
    work = node.pending_tokens + load + _ANEW * uncached + crowding
    return work / node.rate.tokens_per_s + node.silent_s(now)


def strategy(name: StrategyName, index: FleetPrefixIndex) -> Strategy:
    """index: filled with what nodes compute, for `prefix`."""
    table: dict[StrategyName, Strategy] = {
        "prefix": LeastTimeToFirstToken(index),
        "min_expected_latency": min_expected_latency,
        "min_observed_latency": min_observed_latency,
        "random": weighted_random,
    }
    return table[name]
