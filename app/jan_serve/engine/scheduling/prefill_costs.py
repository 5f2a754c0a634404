"""What a token of a prefill takes, by its place and by the rows of its batch, learnt from the steps. Seconds."""

from __future__ import annotations

from dataclasses import dataclass

TILE = 64
"""Rows that llama.cpp's attention on CPUs takes together (ggml_compute_forward_flash_attn_ext_tiled)."""

_UNIT = 2048.0
_FAR = 0.25  # units; nearer than this a measurement tells nothing of what a cell costs
_WEIGHT = 0.25
_FORGETTING = 1.0 / 64.0
# What a cell costs in kinds that were not tried yet, beside each other.
_UNTRIED = (1.0, 0.35, 0.3)


@dataclass(frozen=True, slots=True)
class CachePosition:
    """Where tokens are computed: behind `depth` others of their sequence, in a KV cache with `cells` in use."""

    depth: float = 0.0
    cells: int = 0


class PrefillCosts:
    """A token takes a base, and so much for each cell that it is compared with.

    Fewer rows than a tile look at the cells of their own sequence, and each row by itself; a tile looks at all cells,
    at once for its rows, and larger batches do so in larger blocks. So what a cell costs is learnt for three kinds of
    batches apart. Both costs are exponential averages, the base of tokens that have little before them, a cell's of the
    others. A kind that was never tried, or not for long, is supposed to be better than the one of fewer rows. The very
    first prompt may have read the weights from the disk: one that takes less replaces what it said.
    """

    def __init__(self) -> None:
        self._base_s = 0.0
        self._has_second = False
        self._unit_s: list[float | None] = [None, None, None]

    @property
    def base_s(self) -> float:
        """Of a token that has nothing before it; 0 before anything was seen."""
        return self._base_s

    def token_s(self, rows: int, place: CachePosition) -> float:
        """Of one token in a batch of so many rows; 0 before anything was seen."""
        kind = _kind_of(rows)
        return self._base_s + self._supposed(kind) * _looked_at(kind, place)

    def observe(self, rows: int, place: CachePosition, token_s: float) -> None:
        """A token of a prefill took so long."""
        kind = _kind_of(rows)
        looked = _looked_at(kind, place)
        self._forget(kind)
        if not self._base_s:
            # The least change that explains the measurement.
            self._base_s = token_s / (1.0 + looked**2)
            if looked >= _FAR:
                self._unit_s[kind] = self._base_s * looked
            return
        unit_s = self._supposed(kind)
        if looked < _FAR:
            near_s = max(token_s / 2.0, token_s - unit_s * looked)
            replaces = not self._has_second and near_s < self._base_s
            self._has_second = True
            self._base_s += (1.0 if replaces else _WEIGHT) * (near_s - self._base_s)
            return
        measured = max(0.0, token_s - self._base_s) / looked
        is_new = self._unit_s[kind] is None
        self._unit_s[kind] = measured if is_new else unit_s + _WEIGHT * (measured - unit_s)

    def _supposed(self, kind: int) -> float:
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
        """Tiles that something else held up once are tried again, some time later."""
        narrow, tile = self._unit_s[:2]
        if kind == 0 and narrow is not None and tile is not None:
            self._unit_s[1] = tile + _FORGETTING * (min(tile, _UNTRIED[1] * narrow) - tile)


def _kind_of(rows: int) -> int:
    return min(rows // TILE, 2)


def _looked_at(kind: int, place: CachePosition) -> float:
    return (place.depth if kind == 0 else max(place.depth, place.cells)) / _UNIT
