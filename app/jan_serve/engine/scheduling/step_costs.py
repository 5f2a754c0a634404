"""The costs of all kinds of steps, learnt from them. Seconds."""

from __future__ import annotations

from typing import Final

from jan_serve.engine.scheduling.decode_costs import Curve, DecodeCosts
from jan_serve.engine.scheduling.prefill_costs import PrefillCosts, kind_of

LARGEST_DECODE: Final = 64
"""Rows of the largest step without prefill whose cost is learnt by itself."""

_MIN_MEASURED: Final = 16
"""A smaller prefill costs about as much as a decode: its time says nothing about a token."""
_MIN_GAIN: Final = 0.1
_WEIGHT: Final = 0.5
_FIRST_RETRY: Final = 32
_LAST_RETRY: Final = 1024


class StepCosts:
    """Steps that only decode, steps that only prefill, and how much a step saves that does both.

    decode: of the first kind. `observe` alone adds to it.
    """

    def __init__(self) -> None:
        self.decode = DecodeCosts(LARGEST_DECODE)
        self._prefill = PrefillCosts()
        self._mixing = _Mixing(), _Mixing(), _Mixing()

    @property
    def prefill_base_s(self) -> float:
        """Per token at the start of a prompt; 0 before the first measurement."""
        return self._prefill.base_s

    def prefill_token_s(self, rows: int, depth: float) -> float:
        """Per token of a batch of `rows`; 0 before the first measurement."""
        return self._prefill.token_s(rows, depth)

    def decode_s(self, rows: int) -> float:
        """Of a step that decodes `rows` tokens; 0 before the first measurement."""
        return self.decode.seconds(rows)

    def decode_curve(self) -> Curve | None:
        """Of steps that only decode; None before the first measurement. See DecodeCosts.curve."""
        return self.decode.curve(self._prefill.base_s)

    def draft_curve(self, num_tokens: int, kept: int = 0, run: float = 0.0) -> Curve | None:
        """See DecodeCosts.draft_curve."""
        return self.decode.draft_curve(self._prefill.base_s, num_tokens, kept, run)

    def observe(self, num_decode: int, num_prefill: int, seconds: float, depth: float = 0.0) -> None:
        """Learn from a step with these numbers of decode and prefill rows; depth: the prefill's, on average."""
        if not num_prefill:
            self.decode.observe(num_decode, seconds)
            return
        self.decode.interrupt()
        if num_decode:
            apart_s = self._apart_s(num_decode, num_prefill, depth)
            if apart_s:
                self._mixing[kind_of(num_prefill)].observe(seconds / apart_s)
            return
        self._mixing[kind_of(num_prefill)].skip()
        if num_prefill >= _MIN_MEASURED:
            self._prefill.observe(num_prefill, depth, seconds / num_prefill)

    def mixing_pays(self, num_decode: int, num_prefill: int, depth: float) -> bool:
        """Whether one step saves a tenth of the time of two, beyond noise; after many steps apart, whether it might."""
        apart_s = self._apart_s(num_decode, num_prefill, depth)
        if not apart_s or self.decode_s(num_decode) < _MIN_GAIN * apart_s:
            return False
        return self._mixing[kind_of(num_prefill)].pays(_MIN_GAIN + self.decode.noise)

    def _apart_s(self, num_decode: int, num_prefill: int, depth: float) -> float:
        prefill_s = num_prefill * self.prefill_token_s(num_prefill, depth)
        decode_s = self.decode_s(num_decode)
        return prefill_s + decode_s if prefill_s and decode_s else 0.0


class _Mixing:
    """The time of a mixed step over that of two steps. A loss is tried again, at growing intervals."""

    def __init__(self) -> None:
        self._ratio: float | None = None
        self._skipped = 0
        self._retry = _FIRST_RETRY

    def pays(self, min_gain: float) -> bool:
        return self._ratio is None or self._ratio <= 1.0 - min_gain or self._skipped >= self._retry

    def skip(self) -> None:
        self._skipped += 1

    def observe(self, ratio: float) -> None:
        pays_now = ratio <= 1.0 - _MIN_GAIN
        if self._ratio is not None and self._skipped >= self._retry:
            self._retry = _FIRST_RETRY if pays_now else min(_LAST_RETRY, 2 * self._retry)
            self._ratio = ratio
        elif self._ratio is None:
            self._ratio = ratio
        else:
            self._ratio += _WEIGHT * (min(ratio, 2.0) - self._ratio)
        self._skipped = 0
