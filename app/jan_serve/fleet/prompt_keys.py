"""Keys of a prompt's prefixes: equal keys mean equal prefixes, and no text is kept."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import msgspec

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
        """Estimated number of tokens."""
        return self.n_bytes / BYTES_PER_TOKEN

    def tokens_to(self, depth: int) -> float:
        """An estimate for the first `depth` keys."""
        return self.ends[depth - 1] / BYTES_PER_TOKEN if depth else 0.0


NO_KEYS: Final = PromptKeys((), (), 0)


def prompt_keys(salt: bytes, scope: str, parts: Iterable[bytes]) -> PromptKeys:
    """The keys of a prompt in parts: tools, then messages, or the text.

    salt: secret of the process, up to 64 bytes: keys must not tell whether a known text was sent. scope: prompts share
    nothing across scopes (models). A key for every 512 bytes up to 32 kB, then one for each further part.
    """
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
