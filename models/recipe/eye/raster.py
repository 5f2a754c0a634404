"""Draws scenes into pixels with numpy: signed distances, soft or hard edges, noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.recipe.corpus.draw import Draw
from models.recipe.eye.resize import Pixels
from models.recipe.eye.scene import Scene, Thing, frame

Array = NDArray[np.floating[Any]]

# Strokes of the digits, as points in a box of width 1 and height 2 (down is positive); some have several forms.
_ROUND = ((0, 0.45), (0.12, 0.14), (0.5, 0), (0.88, 0.14), (1, 0.45))
_DIGITS: dict[str, tuple[tuple[tuple[tuple[float, float], ...], ...], ...]] = {
    "0": (
        ((*_ROUND, (1, 1.55), (0.88, 1.86), (0.5, 2), (0.12, 1.86), (0, 1.55), (0, 0.45)),),
        (((0, 0), (1, 0), (1, 2), (0, 2), (0, 0)),),
    ),
    "1": (
        (((0.15, 0.45), (0.55, 0), (0.55, 2)),),
        (((0.1, 0.5), (0.55, 0), (0.55, 2)), ((0.1, 2), (1, 2))),
        (((0.6, 0), (0.6, 2)),),
    ),
    "2": (
        ((*_ROUND, (0.9, 0.85), (0, 2), (1, 2)),),
        (((0, 0), (1, 0), (1, 1), (0, 1), (0, 2), (1, 2)),),
    ),
    "3": (
        (
            (
                (0, 0.35), (0.15, 0.1), (0.5, 0), (0.85, 0.12), (0.97, 0.45), (0.85, 0.8), (0.45, 0.95),
                (0.87, 1.1), (1, 1.5), (0.87, 1.87), (0.5, 2), (0.13, 1.9), (0, 1.6),
            ),
        ),
        (((0, 0), (1, 0), (1, 2), (0, 2)), ((0.2, 1), (1, 1))),
        (((0, 0), (1, 0), (0.4, 0.8), (0.85, 1), (1, 1.5), (0.85, 1.87), (0.45, 2), (0, 1.75)),),
    ),
    "4": (
        (((0.75, 2), (0.75, 0), (0, 1.35), (1.05, 1.35)),),
        (((0, 0), (0, 1), (1, 1)), ((1, 0), (1, 2))),
        (((0.2, 0), (0, 1.2), (1, 1.2)), ((0.75, 0.6), (0.75, 2))),
    ),
    "5": (
        (((0.95, 0), (0.12, 0), (0.05, 0.9), (0.5, 0.75), (0.9, 0.95), (1, 1.4), (0.85, 1.85), (0.45, 2), (0, 1.8)),),
        (((1, 0), (0, 0), (0, 1), (1, 1), (1, 2), (0, 2)),),
    ),
    "6": (
        (
            (
                (0.9, 0.2), (0.55, 0), (0.2, 0.25), (0, 0.9), (0, 1.5), (0.14, 1.87), (0.5, 2), (0.86, 1.87),
                (1, 1.5), (0.87, 1.05), (0.5, 0.9), (0.12, 1.1), (0, 1.4),
            ),
        ),
        (((1, 0), (0, 0), (0, 2), (1, 2), (1, 1), (0, 1)),),
    ),
    "7": (
        (((0, 0), (1, 0), (0.35, 2)),),
        (((0, 0), (1, 0), (0.4, 2)), ((0.25, 1), (0.95, 1))),
        (((0, 0), (1, 0), (1, 2)),),
    ),
    "8": (
        (
            (
                (0.5, 0.92), (0.15, 0.75), (0.05, 0.45), (0.17, 0.12), (0.5, 0), (0.83, 0.12), (0.95, 0.45),
                (0.85, 0.75), (0.5, 0.92), (0.12, 1.12), (0, 1.5), (0.13, 1.87), (0.5, 2), (0.87, 1.87), (1, 1.5),
                (0.88, 1.12), (0.5, 0.92),
            ),
        ),
        (((0, 0), (1, 0), (1, 2), (0, 2), (0, 0)), ((0, 1), (1, 1))),
    ),
    "9": (
        (
            (
                (1, 0.6), (0.88, 0.95), (0.5, 1.1), (0.13, 0.95), (0, 0.5), (0.14, 0.13), (0.5, 0), (0.86, 0.13),
                (1, 0.5), (1, 1.1), (0.8, 1.75), (0.45, 2), (0.1, 1.8),
            ),
        ),
        (((1, 1), (0, 1), (0, 0), (1, 0), (1, 2), (0, 2)),),
    ),
}  # fmt: skip


def rendered(draw: Draw, scene: Scene, longer: int) -> Pixels:
    """The scene as (height, width, 3) pixels with the given longer side."""
    width, height = (max(1, round(longer * share)) for share in frame(scene.aspect))
    picture = _background(draw, scene, width, height)
    xs = (np.arange(width, dtype=np.float32) + 0.5) / longer
    ys = (np.arange(height, dtype=np.float32)[:, None] + 0.5) / longer
    hard = draw.chance(0.35)
    style = _Style(draw)
    for thing in scene.things:
        distance = style.distance(thing, xs, ys) * longer
        cover = (distance < 0).astype(np.float32) if hard else np.clip(0.5 - distance, 0, 1)
        picture += cover[..., None] * (np.array(thing.rgb, np.float32) - picture)
    if draw.chance(0.5):
        noise = np.random.default_rng(draw.random.getrandbits(64)).standard_normal(picture.shape, np.float32)
        picture += noise * np.float32(draw.random.uniform(0, 0.05))
    return (np.clip(picture, 0, 1) * 255 + 0.5).astype(np.uint8)


def _background(draw: Draw, scene: Scene, width: int, height: int) -> Array:
    start, end = (np.array(rgb, np.float32) for rgb in scene.background)
    picture = np.empty((height, width, 3), np.float32)
    if scene.background[0] == scene.background[1]:
        picture[:] = start
    else:
        shares = np.linspace(0, 1, height if draw.chance(0.5) else width, dtype=np.float32)
        step = shares[:, None] * (end - start)
        picture[:] = start + (step[:, None, :] if len(shares) == height else step[None])
    return picture


class _Style:
    """How the things of one picture are drawn: the same for all of them."""

    def __init__(self, draw: Draw) -> None:
        self._form = draw.random.random()
        self._thickness = draw.random.uniform(0.09, 0.2)
        self._width = draw.random.uniform(0.75, 1.1)
        self._slant = draw.random.gauss(0, 0.08)
        self._jitter = [(draw.random.gauss(0, 0.03), draw.random.gauss(0, 0.03)) for _ in range(40)]
        self._corner = draw.random.uniform(0.84, 0.95)
        self._arm = draw.random.uniform(0.26, 0.4)
        self._inner = draw.random.uniform(0.38, 0.5)

    def distance(self, thing: Thing, xs: Array, ys: Array) -> Array:
        """From each pixel to the edge, negative inside, in shares of the longer side."""
        dx, dy = xs - np.float32(thing.x), ys - np.float32(thing.y)
        cos, sin = math.cos(thing.turn), math.sin(thing.turn)
        x = (dx * cos + dy * sin) / (thing.radius * thing.stretch)
        y = (dy * cos - dx * sin) / thing.radius
        unit = self._digit(thing.name, x, y) if thing.name.isdigit() else self._shape(thing.name, x, y)
        return unit * np.float32(thing.radius)

    def _shape(self, name: str, x: Array, y: Array) -> Array:
        if name == "circle":
            return np.hypot(x, y) - np.float32(0.95)
        if name == "square":
            return np.maximum(abs(x), abs(y)) - np.float32(self._corner * 0.92)
        if name == "triangle":  # corners at (0, -1) and (±0.98, 0.8)
            slope = np.float32(1 / math.hypot(1.8, 0.98))
            return np.maximum((1.8 * abs(x) - 0.98 * (y + 1)) * slope, y - np.float32(0.8))
        if name == "cross":
            wide, thin = np.float32(0.98), np.float32(self._arm)
            return np.minimum(
                np.maximum(abs(x) - wide, abs(y) - thin), np.maximum(abs(x) - thin, abs(y) - wide)
            )
        return self._star(x, y)

    def _star(self, x: Array, y: Array) -> Array:
        """Five points: in the slice of one half of a point, the edge is a straight line."""
        half = math.pi / 5
        angle = abs((np.arctan2(x, -y) + half) % np.float32(2 * half) - np.float32(half))
        length = np.hypot(x, y)
        across, along = length * np.sin(angle), length * np.cos(angle)
        inner_x, inner_y = self._inner * math.sin(half), self._inner * math.cos(half)
        top = 1.08
        slope = 1 / math.hypot(top - inner_y, inner_x)
        return (inner_x * (along - top) + (top - inner_y) * across) * np.float32(slope)

    def _digit(self, name: str, x: Array, y: Array) -> Array:
        forms = _DIGITS[name]
        strokes = forms[0] if self._form < 0.5 else forms[int((self._form - 0.5) * 2 * len(forms))]
        nearest = np.full(np.broadcast_shapes(x.shape, y.shape), 9, np.float32)
        scale = 1 - self._thickness
        for stroke in strokes:
            points = [self._moved(point, index, scale) for index, point in enumerate(stroke)]
            for start, end in itertools.pairwise(points):
                np.minimum(nearest, _to_segment(x, y, start, end), out=nearest)
        return np.sqrt(nearest) - np.float32(self._thickness)

    def _moved(self, point: Sequence[float], index: int, scale: float) -> tuple[float, float]:
        shift_x, shift_y = self._jitter[index]
        y = (point[1] - 1 + shift_y) * scale
        return ((point[0] - 0.5 + shift_x) * self._width * scale - self._slant * y, y)


def _to_segment(x: Array, y: Array, start: tuple[float, float], end: tuple[float, float]) -> Array:
    """Squared distance."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = max(dx * dx + dy * dy, 1e-6)
    along = np.clip(
        ((x - start[0]) * np.float32(dx / length)) + ((y - start[1]) * np.float32(dy / length)), 0, 1
    )
    return (x - start[0] - along * np.float32(dx)) ** 2 + (y - start[1] - along * np.float32(dy)) ** 2


def draw_size(draw: Draw, size: int) -> int:
    """The longer side of a picture to be drawn: mostly the model's own, or smaller or larger."""
    roll = draw.random.random()
    if roll < 0.5:
        return size
    if roll < 0.6:
        return draw.between(size * 3 // 4, size)
    return draw.between(size, size * 2 if roll < 0.95 else size * 4)
