"""How much prefill a step may carry beside running streams."""

from __future__ import annotations


class Pacer:
    """Keeps steps that have running streams near `target_s`, from measured speeds.

    A step's time is modelled as a decode part and a cost per prefill token, each an exponential average. Without
    streams nothing is cut: `chunk` tokens go into one step.
    """

    MIN_TOKENS = 16
    _WEIGHT = 0.25

    def __init__(self, target_s: float, chunk: int) -> None:
        self._target = target_s
        self._chunk = chunk
        self._decode_s = 0.0
        self._token_s = 0.0

    def observe(self, num_decode: int, num_prefill: int, seconds: float) -> None:
        """Learn from a step that computed so many decode and prefill tokens."""
        if num_prefill == 0:
            if num_decode:
                self._decode_s += self._WEIGHT * (seconds - self._decode_s) if self._decode_s else seconds
            return
        if num_prefill >= self.MIN_TOKENS:
            per_token = max(0.0, seconds - (self._decode_s if num_decode else 0.0)) / num_prefill
            self._token_s += self._WEIGHT * (per_token - self._token_s) if self._token_s else per_token

    def prefill_tokens(self, num_decode: int) -> int:
        """Prefill tokens that the next step should carry at most."""
        if num_decode == 0 or self._token_s == 0.0:
            return self._chunk if num_decode == 0 else min(self._chunk, 4 * self.MIN_TOKENS)
        room = (self._target - self._decode_s) / self._token_s
        return int(min(self._chunk, max(self.MIN_TOKENS, room)))
