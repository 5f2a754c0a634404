"""The costs of all kinds of steps, learnt from them. Seconds."""

from __future__ import annotations

from typing import Final

from jan_serve.engine.scheduling.decode_costs import Curve, DecodeCosts

LARGEST_DECODE: Final = 64
"""Rows of the largest step without prefill whose cost is learnt by itself."""

TILE: Final = 64
"""Rows of a prefill from which on larger ones save little."""
PART: Final = 32
"""The fewest tokens of a prompt that are read for their own sake: half of them would take almost as long.

Fewer say nothing about the cost of a token.
"""
_WEIGHT: Final = 0.25
_MAX_RATIO: Final = 2.0
"""How many times its estimate a measurement counts at most: limits what one slow step says."""
_MIN_GAIN: Final = 0.1
_RETRY: Final = 256
"""Prefills without streams after which a mixed step is tried again: another program may have slowed the last one."""


class StepCosts:
    """Steps that only decode, a token of those that only prefill, and how much a step saves that does both.

    decode: of the first kind. `observe` alone adds to it.
    prefill_token_s: seconds; 0 before the first measurement.
    """

    def __init__(self) -> None:
        self.decode = DecodeCosts(LARGEST_DECODE)
        self.prefill_token_s = 0.0
        self._num_prefills = 0
        self._mixed: float | None = None
        """The time of a mixed step over that of two steps, on average; None: not tried."""
        self._num_apart = 0

    def decode_s(self, rows: int) -> float:
        """Seconds of a step that decodes `rows` tokens; 0 before the first measurement."""
        return self.decode.seconds(rows)

    def decode_curve(self) -> Curve | None:
        """Seconds of a step that only decodes, by its rows. See DecodeCosts.curve."""
        return self.decode.curve(self.prefill_token_s)

    def draft_curve(self, num_tokens: int, kept: int = 0, run: float = 0.0) -> Curve | None:
        """Seconds of a step with drafts, by its rows. See DecodeCosts.draft_curve."""
        return self.decode.draft_curve(self.prefill_token_s, num_tokens, kept, run)

    def observe(self, num_decode: int, num_prefill: int, seconds: float) -> None:
        """Learn from a step with these numbers of decode and prefill rows."""
        if not num_prefill:
            self.decode.observe(num_decode, seconds)
            return
        self.decode.interrupt()
        if not num_decode:
            self._num_apart += 1
            if num_prefill >= PART:
                self._observe_prefill(seconds / num_prefill)
        elif apart_s := self._apart_s(num_decode, num_prefill):
            ratio = min(seconds / apart_s, _MAX_RATIO)
            if self._mixed is not None and self._num_apart < _RETRY:
                ratio = self._mixed + _WEIGHT * (ratio - self._mixed)
            self._mixed = ratio
            self._num_apart = 0

    def _observe_prefill(self, token_s: float) -> None:
        known_s, self._num_prefills = self.prefill_token_s, self._num_prefills + 1
        # The first prompt may have read the weights from disk: a faster second one replaces what it said.
        if not known_s or (self._num_prefills == 2 and token_s < known_s):
            self.prefill_token_s = token_s
        else:
            self.prefill_token_s += _WEIGHT * (min(token_s, _MAX_RATIO * known_s) - known_s)

    def mixing_pays(self, num_decode: int, num_prefill: int) -> bool:
        """Whether one step saves a tenth of the time of two, beyond noise; after many steps apart, whether it might."""
        if not self._apart_s(num_decode, num_prefill):
            return False
        most = 1.0 - _MIN_GAIN - self.decode.noise
        return self._mixed is None or self._mixed <= most or self._num_apart >= _RETRY

    def _apart_s(self, num_decode: int, num_prefill: int) -> float:
        """Seconds of two steps; 0 while one of them is not known."""
        prefill_s = num_prefill * self.prefill_token_s
        decode_s = self.decode_s(num_decode)
        return prefill_s + decode_s if prefill_s and decode_s else 0.0
