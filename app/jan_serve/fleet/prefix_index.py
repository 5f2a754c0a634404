"""Which node has which prefix cached, as far as the proxy can know: bounded, the least recently used go first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from jan_serve.fleet.node import CacheEpoch, Node

MAX_ENTRIES: Final = 100_000
MAX_HOLDERS: Final = 32
"""Of one prefix: a prompt that everybody has needs no more to be found."""

_Holders = CacheEpoch | dict[CacheEpoch, None]
"""Most prefixes have one holder; more are in the order of their last use."""


class PrefixIndex:
    """Keys of prefixes and the caches that hold them."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._holders: dict[int, _Holders] = {}

    def __len__(self) -> int:
        return len(self._holders)

    def longest(self, keys: Sequence[int]) -> list[Node]:
        """The nodes that have the longest known prefix."""
        find = self._holders.get
        for key in reversed(keys):
            nodes = [epoch.node for epoch in _each(find(key)) if not epoch.is_over]
            if nodes:
                return nodes
        return []

    def depths(self, keys: Sequence[int], nodes: Collection[Node]) -> dict[Node, int]:
        """How many of the keys each of a few nodes has; nodes without any are left out."""
        wanted = {node.cache: node for node in nodes}
        found: dict[Node, int] = {}
        find = self._holders.get
        for depth in range(len(keys), 0, -1):
            holders = find(keys[depth - 1])
            if holders is None:
                continue
            for epoch in [holders] if isinstance(holders, CacheEpoch) else wanted.keys() & holders.keys():
                node = wanted.pop(epoch, None)
                if node is not None:
                    found[node] = depth
            if not wanted:
                break
        return found

    def record(self, keys: Sequence[int], node: Node) -> None:
        """The node computes this prompt, so it will have its prefixes."""
        epoch = node.cache
        table = self._holders
        for key in keys:
            holders = table.pop(key, None)
            if holders is None or holders is epoch:
                table[key] = epoch
                continue
            several = {holders: None} if isinstance(holders, CacheEpoch) else holders
            several.pop(epoch, None)
            several[epoch] = None
            if len(several) > MAX_HOLDERS:
                del several[next(iter(several))]
            table[key] = several
        while len(table) > self._max_entries:
            del table[next(iter(table))]

    def forget(self, keys: Sequence[int], node: Node) -> None:
        """The node did not compute this prompt after all."""
        epoch = node.cache
        for key in keys:
            holders = self._holders.get(key)
            if holders is epoch:
                del self._holders[key]
            elif isinstance(holders, dict):
                holders.pop(epoch, None)


def _each(holders: _Holders | None) -> Iterable[CacheEpoch]:
    if holders is None:
        return ()
    return (holders,) if isinstance(holders, CacheEpoch) else holders
