"""How much prefill a step may carry beside running streams."""

from __future__ import annotations

from typing import Final

from jan_serve.engine.scheduling.prefill_costs import TILE, CachePosition, PrefillCosts

STREAM_SHARE: Final = 0.7
"""A stream's own steps are slower beside a prompt in the cache: of 0.7 of the time it keeps 0.6 of its rate."""
_NOWHERE = CachePosition()


class Pacer:
    """Shares time between prefill and running streams, from measured speeds. Times in seconds.

    A step's time is modelled as a decode part, an exponential average, and a cost per prefill token. Prefill beside
    streams comes in pieces of about `target_s`, and after each the streams run alone until they have had `stream_share`
    of the time. It is not cut for streams that have only begun where it takes BURST_S at most, for each of them that
    waits, for each that is prefilled: requests that came together, but not quite, then go on in step, which is faster
    for all. Nor for streams that have their first tokens, where what is left of the prompts that came with them takes
    TOGETHER_S at most: these may be several steps, and the last of them would wait far longer than all together.

    Without streams there is nothing to share. Steps take about ALONE_S then, so that a request that comes in between
    does not wait for long, and no step of a slow machine looks like one that hangs.

    Where a token costs less in a tile of llama.cpp's attention, and the pause is LONGEST_S at most, a piece fills one,
    together with the tokens of the streams.
    """

    MIN_TOKENS = 16
    BURST_S = 2.0
    ALONE_S = 4.0
    TOGETHER_S = 3 * ALONE_S
    FIRST_TOKENS = 512  # of a step before any speed is known
    LONGEST_S = 1.0
    _PAYS = 0.9
    _TELLING = 16  # a piece of fewer tokens costs nearly as much as a decode, and says nothing about a token
    _WEIGHT = 0.25

    def __init__(
        self, target_s: float, chunk: int, *, stream_share: float = STREAM_SHARE, tiles: bool = True
    ) -> None:
        """chunk: tokens that a step carries at most. target_s: of a step beside streams; 0 cuts nothing for them.

        stream_share: above 0 and below 1. tiles: whether the attention may have them.
        """
        self._owed_share = stream_share / (1.0 - stream_share)
        self._tiles = tiles
        self._target = target_s
        self._chunk = chunk
        self._decode_s = 0.0
        self._costs = PrefillCosts()
        self._owed_s = 0.0
        self.tiles_total = 0  # pieces that were made longer, and did fill a tile
        self._wants_tile = False

    @property
    def prefill_token_s(self) -> float:
        """Seconds that a token takes at the beginning of a prompt; 0 before any was seen."""
        return self._costs.base_s

    def observe(
        self,
        num_decode: int,
        num_prefill: int,
        seconds: float,
        *,
        num_drafted: int = 0,
        place: CachePosition = _NOWHERE,
    ) -> None:
        """Learn from a step that computed so many decode and prefill tokens, these at `place`.

        num_drafted: how many of the decode tokens were guesses. A step that carries prefill has none, so that one with
        many tells little of what decoding costs beside a prefill.
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
        if num_prefill >= self._TELLING:
            self._costs.observe(rows, place, prefill_s / num_prefill)
        if num_decode:
            self._owed_s += prefill_s * self._owed_share

    def prefill_tokens(
        self,
        num_streams: int,
        num_prefilling: int,
        place: CachePosition = _NOWHERE,
        *,
        available: int | None = None,
        late_tokens: int | None = None,
        together_tokens: int = 0,
    ) -> int:
        """Prefill tokens that the next step should carry at most, beside so many sequences of each kind.

        place: of the first of them. available: how many there are for this step, None for any number. late_tokens:
        tokens of all prefills where every stream has only begun; None where one has not. together_tokens: of
        the prompts that came with the streams, where none of these has more than its first tokens.
        """
        self._wants_tile = False
        whole_s = self._costs.token_s(self._chunk, place)
        whole = self._whole(whole_s)
        if num_streams == 0 or self._target == 0.0:
            return whole
        patience_s = self.BURST_S * num_prefilling / num_streams
        if late_tokens is not None and 0.0 < late_tokens * whole_s <= patience_s:
            return whole
        if 0.0 < together_tokens * whole_s <= self.TOGETHER_S:
            return min(whole, together_tokens)
        if self._owed_s > 0.0:
            return 0
        most = self._chunk if available is None else min(self._chunk, available)
        return int(min(self._chunk, max(self.MIN_TOKENS, self._beside(num_streams, place, most))))

    def _beside(self, num_streams: int, place: CachePosition, most: int) -> float:
        """Tokens that go into the target, or fill a tile."""
        rest_s, tile = self._target - self._decode_s, TILE - num_streams
        tile_s = self._costs.token_s(TILE, place)
        if most >= tile:
            if (many := self._fitting(rest_s, tile_s)) >= tile:
                return many
            if self._tiles and self._tile_pays(tile, tile_s, place):
                self._wants_tile = True
                return tile
        return min(self._fitting(rest_s, self._costs.token_s(1, place)), tile)

    def _tile_pays(self, tile: int, tile_s: float, place: CachePosition) -> bool:
        much_less = 0.0 < tile_s <= self._PAYS * self._costs.token_s(1, place)
        return much_less and tile * tile_s <= self.LONGEST_S

    def _whole(self, token_s: float) -> int:
        """Tokens of a step that nothing else waits for: whole tiles, one at least."""
        if not token_s:
            return min(self._chunk, self.FIRST_TOKENS)
        tiles = int(self._fitting(self.ALONE_S, token_s)) // TILE
        return min(self._chunk, max(1, tiles) * TILE)

    @staticmethod
    def _fitting(seconds: float, token_s: float) -> float:
        return seconds / token_s if token_s else 0.0

    def _average(self, old: float, new: float) -> float:
        return old + self._WEIGHT * (new - old) if old else new
