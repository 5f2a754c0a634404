"""Keys of the prefixes of prompts, without their text, and which node has which prefix cached, as far as is known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from jan_serve.fleet.node import CacheEpoch, Node

BLOCK_BYTES: Final = 512
MAX_BLOCKS: Final = 64
MAX_PARTS: Final = 192
BYTES_PER_TOKEN: Final = 4.0
_DIGEST_BYTES: Final = 8


class PromptKeys(msgspec.Struct, frozen=True):
    """keys: of prefixes, each longer than the one before. ends: their lengths in bytes. n_bytes: of the prompt."""

    keys: tuple[int, ...]
    ends: tuple[int, ...]
    n_bytes: int

    @property
    def tokens(self) -> float:
        return self.n_bytes / BYTES_PER_TOKEN

    def tokens_to(self, depth: int) -> float:
        """An estimate for the first `depth` keys."""
        return self.ends[depth - 1] / BYTES_PER_TOKEN if depth else 0.0


NO_KEYS: Final = PromptKeys((), (), 0)


def prompt_keys(salt: bytes, scope: str, parts: Iterable[bytes]) -> PromptKeys:
    """The keys of a prompt in parts: tools, then messages, or the text. salt: secret of the process, up to 64 bytes:
    keys must not tell whether a known text was sent. scope: prompts share nothing across scopes (models). A key for
    every 512 bytes up to 32 kB, then one for each further part."""
    state = blake2b(scope.encode("utf-8", "surrogatepass") + b"\0", digest_size=_DIGEST_BYTES, key=salt)
    keys: list[int] = []
    ends: list[int] = []
    n_bytes = hashed = 0
    for number, part in enumerate(parts):
        start = 0
        while len(keys) < MAX_BLOCKS:
            end = start + BLOCK_BYTES - (n_bytes + start - hashed)
            if end > len(part):
                break
            state.update(part[start:end])
            start = end
            hashed = n_bytes + start
            keys.append(int.from_bytes(state.digest()))
            ends.append(hashed)
        state.update(part[start:])
        n_bytes += len(part)
        if len(keys) >= MAX_BLOCKS and n_bytes > hashed and number < MAX_PARTS:
            hashed = n_bytes
            keys.append(int.from_bytes(state.digest()))
            ends.append(n_bytes)
    return PromptKeys(tuple(keys), tuple(ends), n_bytes)


MAX_ENTRIES: Final = 100_000
MAX_HOLDERS: Final = 32
"""Most holders kept of one prefix: a prompt that everybody has needs no more to be found."""

_Holders = CacheEpoch | dict[CacheEpoch, None]
"""Most prefixes have one holder; more are in the order of their last use."""


class FleetPrefixIndex:
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
