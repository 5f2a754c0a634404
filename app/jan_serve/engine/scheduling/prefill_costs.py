"""The cost of a prefill token, by its depth and the rows of its batch, learnt from the steps. Seconds.

The depth of a token: how many tokens of its sequence are before it.
"""

from __future__ import annotations

TILE = 64
"""Rows of a batch from which on larger ones save little."""

_UNIT = 2048.0
_FAR = 0.25  # units; a nearer measurement says nothing about the cost of a cell
_WEIGHT = 0.25
_MAX_RATIO = 2.0  # of a measurement over the estimate: limits what one slow step says
_FORGETTING = 1.0 / 64.0
# Assumed relative costs of a cell for untried kinds of batches.
_UNTRIED = (1.0, 0.8, 0.7)


class PrefillCosts:
    """A token costs a base, plus an amount for each cell before it, which its attention reads.

    Rows of a batch share the reading of cells, so the cost of a cell is learnt for three kinds of batches. Both costs
    are exponential averages: the base over tokens near the start of their sequence, the cost of a cell over the others.
    Untried batch kinds are assumed cheaper than those of fewer rows, so they get tried; tiles are retried after a
    while. The first prompt may have read the weights from disk: a cheaper second one replaces it.
    """

    def __init__(self) -> None:
        self._base_s = 0.0
        self._has_second = False
        self._unit_s: list[float | None] = [None, None, None]

    @property
    def base_s(self) -> float:
        """Of a token at the start of a sequence; 0 before the first measurement."""
        return self._base_s

    def token_s(self, rows: int, depth: float) -> float:
        """Of one token in a batch of `rows`; 0 before the first measurement."""
        return self._base_s + self._estimate(kind_of(rows)) * depth / _UNIT

    def observe(self, rows: int, depth: float, token_s: float) -> None:
        """Learn that a token of a prefill took `token_s`."""
        kind = kind_of(rows)
        units = depth / _UNIT
        self._forget(kind)
        if not self._base_s:
            # The smallest change that explains the measurement.
            self._base_s = token_s / (1.0 + units**2)
            if units >= _FAR:
                self._unit_s[kind] = self._base_s * units
            return
        unit_s = self._estimate(kind)
        if self._has_second and (units < _FAR or self._unit_s[kind] is not None):
            token_s = min(token_s, _MAX_RATIO * (self._base_s + unit_s * units))
        if units < _FAR:
            near_s = max(token_s / 2.0, token_s - unit_s * units)
            replaces = not self._has_second and near_s < self._base_s
            self._has_second = True
            self._base_s += (1.0 if replaces else _WEIGHT) * (near_s - self._base_s)
            return
        measured = max(0.0, token_s - self._base_s) / units
        is_new = self._unit_s[kind] is None
        self._unit_s[kind] = measured if is_new else unit_s + _WEIGHT * (measured - unit_s)

    def _estimate(self, kind: int) -> float:
        """Seconds per unit of cells: measured, or scaled from the nearest measured kind."""
        known = self._unit_s[kind]
        if known is not None:
            return known
        others = [
            (abs(other - kind), unit_s * _UNTRIED[kind] / _UNTRIED[other])
            for other, unit_s in enumerate(self._unit_s)
            if unit_s is not None
        ]
        return min(others)[1] if others else 0.0

    def _forget(self, kind: int) -> None:
        """Lower the cost of tiles a little, so that a single slow measurement does not rule them out for ever."""
        narrow, tile = self._unit_s[:2]
        if kind == 0 and narrow is not None and tile is not None:
            self._unit_s[1] = tile + _FORGETTING * (min(tile, _UNTRIED[1] * narrow) - tile)


def kind_of(rows: int) -> int:
    return min(rows // TILE, 2)
