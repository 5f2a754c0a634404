"""The nodes that serve one model in one role, with a random choice and a stable choice in constant time."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Iterator
from hashlib import blake2b
from random import Random
from typing import Final

from jan_serve.fleet.node import Node

_POINTS: Final = 8
"""Points of a node on the ring, which even out the shares of nodes."""


class Pool:
    """A list that a node leaves by swapping with the last one, and a ring of hashes (consistent hashing)."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._indexes: dict[Node, int] = {}
        self._ring: list[tuple[int, int]] = []
        self._by_tag: dict[int, Node] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def __contains__(self, node: Node) -> bool:
        return node in self._indexes

    def add(self, node: Node) -> None:
        self._indexes[node] = len(self._nodes)
        self._nodes.append(node)
        for point, tag in _points(node):
            insort(self._ring, (point, tag))
            self._by_tag[tag] = node

    def remove(self, node: Node) -> None:
        index, last = self._indexes.pop(node), self._nodes.pop()
        if last is not node:
            self._nodes[index] = last
            self._indexes[last] = index
        for point, tag in _points(node):
            self._ring.pop(bisect(self._ring, (point, tag)) - 1)
            del self._by_tag[tag]

    def random(self, rng: Random) -> Node:
        """Raises IndexError if the pool is empty."""
        return self._nodes[int(rng.random() * len(self._nodes))]

    def at(self, key: int) -> Iterator[Node]:
        """Nodes in the order in which they follow a key on the ring: the same in every proxy. Repeats nodes."""
        start = bisect(self._ring, (key, -1))
        for step in range(len(self._ring)):
            yield self._by_tag[self._ring[(start + step) % len(self._ring)][1]]


def _points(node: Node) -> Iterator[tuple[int, int]]:
    digest = blake2b(node.url.encode(), digest_size=8 * _POINTS).digest()
    for index in range(_POINTS):
        point = int.from_bytes(digest[8 * index : 8 * index + 8])
        yield point, point
