"""Chunked prefill: how many prompt tokens a step may carry beside running streams."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from jan_serve.engine.scheduling.prefill_costs import TILE, CachePosition, PrefillCosts
from jan_serve.engine.sequence import Sequence

STREAM_SHARE: Final = 0.7
"""A step of a stream is slower while a prompt is in the cache: with 0.7 of the time it keeps 0.6 of its rate."""

_FIRST_TOKENS: Final = 3
"""The first stream of a group is ahead by one token for each step that the other prompts take."""

_BEGUN_TOKENS: Final = 8
"""A stream of fewer tokens has only just begun: a pause is hardly noticed yet."""

_START = CachePosition()


class Pacer:
    """Divides time between prefill and running streams, from measured speeds. Times in seconds.

    A step costs a decode part, an exponential average, and a cost per prefill token.

    No streams: a step takes about ALONE_S, so that new requests soon get their turn and no step looks like a hang.
    Streams: chunks take about `target_s`; after each the streams run alone until they had `stream_share` of the time.
    Every stream has only just begun: prefill runs uncut, up to BURST_S * prefilling / streaming. Requests that arrived
    almost together then decode in step, which is faster for all.
    Streams have only their first tokens: the prompts that arrived with them run uncut, up to TOGETHER_S over several
    steps. Otherwise the last of them would wait far longer than all together.
    Tiles: if a token is cheaper in a tile of llama.cpp's attention and the pause is LONGEST_S at most, a chunk and the
    streams' tokens together fill a tile.
    """

    MIN_TOKENS = 16
    BURST_S = 2.0
    ALONE_S = 4.0
    TOGETHER_S = 3 * ALONE_S
    FIRST_TOKENS = 512  # of a step while no speed is known
    LONGEST_S = 1.0
    _MAX_TILE_COST = 0.9  # of a token outside a tile
    _MIN_MEASURED = 16  # a smaller chunk costs about as much as a decode: its time says nothing about a token
    _WEIGHT = 0.25

    def __init__(
        self, target_s: float, chunk: int, *, stream_share: float = STREAM_SHARE, tiles: bool = True
    ) -> None:
        """chunk: max tokens of a step. target_s: of a step beside streams; 0 never cuts prefill for them.

        stream_share: above 0 and below 1. tiles: whether llama.cpp's attention can use tiles.
        """
        self._owed_share = stream_share / (1.0 - stream_share)
        self._tiles = tiles
        self._target = target_s
        self._chunk = chunk
        self._decode_s = 0.0
        self._costs = PrefillCosts()
        self._owed_s = 0.0
        self.tiles_total = 0  # chunks that were extended to a tile
        self._wants_tile = False

    @property
    def prefill_token_s(self) -> float:
        """Seconds per token at the start of a prompt; 0 before the first measurement."""
        return self._costs.base_s

    def observe(
        self,
        num_decode: int,
        num_prefill: int,
        seconds: float,
        *,
        num_drafted: int = 0,
        position: CachePosition = _START,
    ) -> None:
        """Learn from a step with these numbers of decode and prefill tokens; the prefill is at `position`.

        num_drafted: decode tokens that were drafts. A step with prefill has no drafts, so the time of a step with many
        drafts says little about the cost of decoding beside a prefill.
        """
        if num_decode == 0:
            self._owed_s = 0.0
        if num_prefill == 0:
            if num_decode:
                if not num_drafted:
                    self._decode_s = self._average(self._decode_s, seconds)
                elif not self._decode_s:
                    self._decode_s = seconds * (num_decode - num_drafted) / num_decode
                self._owed_s = max(0.0, self._owed_s - seconds)
            return
        rows = num_decode + num_prefill
        self.tiles_total += self._wants_tile and rows >= TILE
        prefill_s = max(0.0, seconds - (self._decode_s if num_decode else 0.0))
        if num_prefill >= self._MIN_MEASURED:
            self._costs.observe(rows, position, prefill_s / num_prefill)
        if num_decode:
            self._owed_s += prefill_s * self._owed_share

    def prefill_tokens(
        self,
        num_streams: int,
        num_prefilling: int,
        position: CachePosition = _START,
        *,
        available: int | None = None,
        late_tokens: int | None = None,
        together_tokens: int = 0,
    ) -> int:
        """Max prefill tokens of the next step, beside these numbers of streams and prefilling sequences.

        position: of the first prefill. available: tokens left to prefill; None: any number. late_tokens: those of all
        prefills if every stream has only just begun, otherwise None. together_tokens: those of the prompts that arrived
        with the streams if no stream has more than its first tokens, otherwise 0.
        """
        self._wants_tile = False
        token_s = self._costs.token_s(self._chunk, position)
        uncut = self._uncut(token_s)
        if num_streams == 0 or self._target == 0.0:
            return uncut
        burst_s = self.BURST_S * num_prefilling / num_streams
        if late_tokens is not None and 0.0 < late_tokens * token_s <= burst_s:
            return uncut
        if 0.0 < together_tokens * token_s <= self.TOGETHER_S:
            return min(uncut, together_tokens)
        if self._owed_s > 0.0:
            return 0
        limit = self._chunk if available is None else min(self._chunk, available)
        return int(min(self._chunk, max(self.MIN_TOKENS, self._beside(num_streams, position, limit))))

    def _beside(self, num_streams: int, position: CachePosition, limit: int) -> float:
        """Tokens that take the rest of `target_s`, or that fill a tile."""
        rest_s, tile = self._target - self._decode_s, TILE - num_streams
        tile_token_s = self._costs.token_s(TILE, position)
        if limit >= tile:
            if (fitting := self._fitting(rest_s, tile_token_s)) >= tile:
                return fitting
            if self._tiles and self._tile_pays(tile, tile_token_s, position):
                self._wants_tile = True
                return tile
        return min(self._fitting(rest_s, self._costs.token_s(1, position)), tile)

    def _tile_pays(self, tile: int, tile_token_s: float, position: CachePosition) -> bool:
        is_cheaper = 0.0 < tile_token_s <= self._MAX_TILE_COST * self._costs.token_s(1, position)
        return is_cheaper and tile * tile_token_s <= self.LONGEST_S

    def _uncut(self, token_s: float) -> int:
        """Tokens of a step for which no stream waits: whole tiles, at least one."""
        if not token_s:
            return min(self._chunk, self.FIRST_TOKENS)
        tiles = int(self._fitting(self.ALONE_S, token_s)) // TILE
        return min(self._chunk, max(1, tiles) * TILE)

    @staticmethod
    def _fitting(seconds: float, token_s: float) -> float:
        return seconds / token_s if token_s else 0.0

    def _average(self, old: float, new: float) -> float:
        return old + self._WEIGHT * (new - old) if old else new


def prefill_budget(pacer: Pacer, turn: Iterable[Sequence], *, cells: int) -> int:
    """Max prefill tokens of the next step, for the sequences whose turn it is. cells: in use in the KV cache."""
    prefilling: list[Sequence] = []
    streams: list[Sequence] = []
    for sequence in turn:
        (prefilling if sequence.is_prefilling else streams).append(sequence)
    longest = max((stream.num_generated for stream in streams), default=0)
    return pacer.prefill_tokens(
        len(streams),
        len(prefilling),
        CachePosition(prefilling[0].num_computed if prefilling else 0, cells),
        available=sum(sequence.num_prefill for sequence in prefilling),
        late_tokens=_uncomputed(prefilling) if longest < _BEGUN_TOKENS else None,
        together_tokens=_uncomputed(_came_with(streams, prefilling)) if longest <= _FIRST_TOKENS else 0,
    )


def _came_with(streams: Iterable[Sequence], prefilling: Iterable[Sequence]) -> Iterable[Sequence]:
    """The prefilling sequences whose requests had arrived before the last stream's first token."""
    last = max((stream.state.first_token or 0.0 for stream in streams), default=0.0)
    return (sequence for sequence in prefilling if sequence.state.arrived <= last)


def _uncomputed(sequences: Iterable[Sequence]) -> int:
    return sum(sequence.num_uncomputed for sequence in sequences)
