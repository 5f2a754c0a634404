"""How much prefill a step may carry beside running streams."""

from __future__ import annotations


class Pacer:
    """Shares time between prefill and running streams, from measured speeds. Times in seconds.

    A step's time is modelled as a decode part and a cost per prefill token, each an exponential average. Prefill beside
    streams comes in pieces of about `target_s`, and after each the streams run alone until they have had
    STREAM_SHARE of the time. It is not cut for streams that have only begun where it takes BURST_S at most, for each of
    them that waits, for each that is prefilled: requests that came together, but not quite, then go on in step, which
    is faster for all.

    Without streams there is nothing to share. Steps take about ALONE_S then, so that a request that comes in between
    does not wait for long, and no step of a slow machine looks like one that hangs.

    llama.cpp's attention on CPUs takes TILE rows at a time (ggml_compute_forward_flash_attn_ext_tiled), and fewer than
    that by a path on which a token costs twice as much behind a long context. So a piece fills one such tile, together
    with the tokens of the streams, where that is measured to pay and the pause is LONGEST_S at most.
    """

    MIN_TOKENS = 16
    STREAM_SHARE = 0.6
    BURST_S = 2.0
    ALONE_S = 4.0
    FIRST_TOKENS = 512  # of a step before any speed is known
    TILE = 64
    LONGEST_S = 1.0
    _PAYS = 0.7
    _WORST_S = 2.0  # should a tile be no faster
    _TELLING = 16  # a piece of fewer tokens costs nearly as much as a decode, and says nothing about a token
    _WEIGHT = 0.25

    def __init__(self, target_s: float, chunk: int, *, tiles: bool = True) -> None:
        """chunk: tokens that a step carries at most. target_s: of a step beside streams; 0 cuts nothing for them.

        tiles: whether the attention may have them.
        """
        self._tiles = tiles
        self._target = target_s
        self._chunk = chunk
        self._decode_s = 0.0
        self._token_s = 0.0
        # Of a token in pieces of less than a tile, and of a tile, of the prefill that goes on.
        self._narrow_s = self._tile_s = 0.0
        self._owed_s = 0.0
        self.tiles_total = 0  # pieces that were made longer, and did fill a tile
        self._wants_tile = False

    @property
    def prefill_token_s(self) -> float:
        """Seconds that one token of a prefill takes; 0 before any was seen."""
        return self._token_s

    def observe(self, num_decode: int, num_prefill: int, seconds: float, *, num_drafted: int = 0) -> None:
        """Learn from a step that computed so many decode and prefill tokens.

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
                if self._owed_s == 0.0:
                    self._narrow_s = self._tile_s = 0.0
                self._owed_s = max(0.0, self._owed_s - seconds)
            return
        self.tiles_total += self._wants_tile and num_decode + num_prefill >= self.TILE
        prefill_s = max(0.0, seconds - (self._decode_s if num_decode else 0.0))
        if num_prefill >= self._TELLING:
            token_s = prefill_s / num_prefill
            self._token_s = self._average(self._token_s, token_s)
            if num_decode + num_prefill < self.TILE:
                self._narrow_s = self._average(self._narrow_s, token_s)
            elif num_decode + num_prefill < 2 * self.TILE:
                self._tile_s = token_s
        if num_decode:
            self._owed_s += prefill_s * self.STREAM_SHARE / (1.0 - self.STREAM_SHARE)

    def prefill_tokens(self, num_streams: int, num_prefilling: int, *, late_tokens: int | None = None) -> int:
        """Prefill tokens that the next step should carry at most, beside so many sequences of each kind.

        late_tokens: tokens of all prefills where every stream has only begun; None where one has not.
        """
        self._wants_tile = False
        whole = self._whole()
        if num_streams == 0 or self._target == 0.0:
            return whole
        patience_s = self.BURST_S * num_prefilling / num_streams
        if late_tokens is not None and 0.0 < late_tokens * self.prefill_token_s <= patience_s:
            return whole
        if self._owed_s > 0.0:
            return 0
        rest_s = self._target - self._decode_s
        if num_streams + self._fitting(rest_s, self.prefill_token_s) >= self.TILE:
            room = self._fitting(rest_s, self.prefill_token_s)
        elif self._tile_pays():
            room = self.TILE - num_streams
            self._wants_tile = True
        else:
            room = min(self._fitting(rest_s, self.prefill_token_s), self.TILE - num_streams)
        return int(min(self._chunk, max(self.MIN_TOKENS, room)))

    def _whole(self) -> int:
        """Tokens of a step that nothing else waits for: whole tiles, one at least."""
        if not self.prefill_token_s:
            return min(self._chunk, self.FIRST_TOKENS)
        tiles = int(self._fitting(self.ALONE_S, self.prefill_token_s)) // self.TILE
        return min(self._chunk, max(1, tiles) * self.TILE)

    @staticmethod
    def _fitting(seconds: float, token_s: float) -> float:
        return seconds / token_s if token_s else 0.0

    def _tile_pays(self) -> bool:
        """Whether a token costs much less in a full tile, at this place of the prompt; tried where it may."""
        if not self._tiles or not 0.0 < self.TILE * self._narrow_s <= self._WORST_S:
            return False
        return self._tile_s <= min(self._PAYS * self._narrow_s, self.LONGEST_S / self.TILE)

    def _average(self, old: float, new: float) -> float:
        return old + self._WEIGHT * (new - old) if old else new
