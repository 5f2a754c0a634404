"""Which node has which prefix cached, as far as the proxy can know: bounded, and corrected by what nodes report."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from jan_serve.fleet.node import CacheEpoch, Node

MAX_ENTRIES: Final = 100_000
MAX_HOLDERS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """A prompt that a node computed. at_tokens: the node's count of computed tokens then."""

    epoch: CacheEpoch
    at_tokens: float

    @property
    def distance(self) -> float:
        """Tokens that the node computed since: what a cache must hold to have the prompt still."""
        return self.epoch.node.computed_tokens - self.at_tokens

    @property
    def is_believed(self) -> bool:
        return not self.epoch.is_over and self.distance <= self.epoch.node.cache_tokens


class PrefixIndex:
    """Keys and their last uses, one a node, the most recent last. The least recently used keys are dropped."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._max_entries = max_entries
        self._uses: dict[int, tuple[Use, ...]] = {}

    def __len__(self) -> int:
        return len(self._uses)

    def longest(self, keys: Sequence[int]) -> list[Node]:
        """The nodes that should have the longest known prefix."""
        find = self._uses.get
        for key in reversed(keys):
            nodes = [use.epoch.node for use in find(key, ()) if use.is_believed]
            if nodes:
                return nodes
        return []

    def depths(self, keys: Sequence[int], nodes: Collection[Node]) -> dict[Node, tuple[int, Use]]:
        """How many of the keys each of a few nodes once had, and when; nodes without any are left out."""
        wanted = {node.cache: node for node in nodes}
        found: dict[Node, tuple[int, Use]] = {}
        find = self._uses.get
        for depth in range(len(keys), 0, -1):
            for use in find(keys[depth - 1], ()):
                node = wanted.pop(use.epoch, None)
                if node is not None:
                    found[node] = depth, use
            if not wanted:
                break
        return found

    def record(self, keys: Sequence[int], node: Node) -> Use:
        """The node computes this prompt, so it will have its prefixes."""
        epoch = node.cache
        use = Use(epoch, node.computed_tokens)
        alone = (use,)
        table = self._uses
        for key in keys:
            uses = table.pop(key, None)
            if uses is None or (len(uses) == 1 and uses[0].epoch is epoch):
                table[key] = alone
            else:
                others = [each for each in uses if each.epoch is not epoch and not each.epoch.is_over]
                table[key] = (*others[1 - MAX_HOLDERS :], use)
        while len(table) > self._max_entries:
            del table[next(iter(table))]
        return use

    def forget(self, keys: Sequence[int], use: Use) -> None:
        """The node did not compute this prompt after all."""
        for key in keys:
            uses = self._uses.get(key)
            if uses is None or use not in uses:
                continue
            left = tuple(each for each in uses if each is not use)
            if left:
                self._uses[key] = left
            else:
                del self._uses[key]
