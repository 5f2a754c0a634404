"""What a picture shows: the things in it, as values that are drawn, asked about and described.

Places and sizes are shares of the longer side; the shorter side is ``frame``'s. The picture is described by a caption,
by whose hash it belongs to training or to the evaluation (:func:`models.recipe.corpus.draw.is_held_out`).
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from models.recipe.corpus.draw import Draw, on_our_side

SHAPES = ("circle", "square", "triangle", "star", "cross")
COUNTS = ("one", "two", "three", "four")
PLACES = ("in the middle", "on the left", "on the right", "at the top", "at the bottom")
# How the first thing of two lies to the second one, and the other way round.
OPPOSITE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
Rgb = tuple[float, float, float]
Kind = Literal["one", "several", "two", "digit", "nothing"]

# Ranges of hue (in degrees; above 360 it goes on from 0), saturation and value. They hold the CSS colour of the name.
COLOURS: Mapping[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    "red": ((352, 367), (0.85, 1.0), (0.75, 1.0)),
    "orange": ((24, 40), (0.85, 1.0), (0.9, 1.0)),
    "yellow": ((50, 63), (0.7, 1.0), (0.88, 1.0)),
    "green": ((95, 150), (0.6, 1.0), (0.4, 0.95)),
    "blue": ((205, 242), (0.7, 1.0), (0.55, 1.0)),
    "purple": ((272, 302), (0.55, 1.0), (0.4, 0.8)),
    "pink": ((322, 351), (0.22, 0.6), (0.93, 1.0)),
    "brown": ((0, 30), (0.6, 0.8), (0.35, 0.65)),
    "black": ((0, 360), (0.0, 0.1), (0.0, 0.1)),
    "white": ((0, 360), (0.0, 0.03), (0.94, 1.0)),
    "grey": ((0, 360), (0.0, 0.04), (0.42, 0.62)),
}
_LEAST_CONTRAST = 0.42
_LEAST_RADIUS = 0.125
_GAP = 0.05


@dataclass(frozen=True)
class Thing:
    """A shape or a digit. ``x`` and ``y`` are its middle, ``radius`` half its size."""

    name: str
    colour: str
    rgb: Rgb
    x: float
    y: float
    radius: float
    turn: float
    stretch: float

    @property
    def noun(self) -> str:
        return f"digit {self.name}" if self.name.isdigit() else self.name


@dataclass(frozen=True)
class Scene:
    """A picture. ``relation`` is how the first of two things lies to the second; ``place`` that of a single shape."""

    kind: Kind
    things: tuple[Thing, ...]
    background: tuple[Rgb, Rgb]
    aspect: float
    relation: str = ""
    place: str = ""

    @property
    def key(self) -> str:
        """The side of the split: all that can be asked about."""
        return f"{self.caption()} {self.place}".strip()

    def caption(self) -> str:
        """The things and how they lie, without a verb."""
        if not self.things:
            return "nothing"
        first = self.things[0]
        if self.kind == "several":
            return f"{COUNTS[len(self.things) - 1]} {first.colour} {plural(first.name)}"
        if self.kind == "two":
            return f"{_one(first)} {self.relation} {_one(self.things[1])}"
        return f"the digit {first.name} in {first.colour}" if self.kind == "digit" else _one(first)


def _one(thing: Thing) -> str:
    return f"{article(thing.colour)} {thing.colour} {thing.name}"


def plural(noun: str) -> str:
    return noun + ("es" if noun.endswith("s") else "s")


def article(word: str) -> str:
    return "an" if word[0] in "aeiou" else "a"


def frame(aspect: float) -> tuple[float, float]:
    """Width and height of a picture in shares of its longer side."""
    return min(1.0, aspect), min(1.0, 1 / aspect)


def draw_scene(draw: Draw, kind: Kind | None = None) -> Scene:
    """A random scene on the side of the split that ``draw`` stands on."""
    chosen: Kind = (
        kind or draw.random.choices(("one", "several", "two", "digit", "nothing"), (24, 20, 33, 20, 3))[0]
    )
    if chosen == "nothing":
        return _nothing(draw)
    return on_our_side(draw, lambda each: _SCENES[chosen](each))


def _one_shape(draw: Draw) -> Scene:
    aspect = _aspect(draw, 1.5)
    width, height = frame(aspect)
    background = _background(draw)
    place = draw.choice(PLACES)
    radius = draw.random.uniform(0.15, 0.27 if place != PLACES[0] else 0.42) * min(width, height)
    room_x, room_y = width / 2 - radius, height / 2 - radius
    away, near = draw.random.uniform(0.6, 1.0), draw.random.uniform(-0.3, 0.3)
    step_x, step_y = {
        "in the middle": (near * 0.5, draw.random.uniform(-0.15, 0.15)),
        "on the left": (-away, near),
        "on the right": (away, near),
        "at the top": (near, -away),
        "at the bottom": (near, away),
    }[place]
    x, y = width / 2 + step_x * room_x, height / 2 + step_y * room_y
    thing = _thing(draw, draw.choice(SHAPES), _colour(draw, background), x, y, radius, background)
    return Scene("one", (thing,), background, aspect, place=place)


def _several_shapes(draw: Draw) -> Scene:
    aspect = _aspect(draw, 1.3)
    background = _background(draw)
    count = draw.between(2, len(COUNTS))
    name, colour = draw.choice(SHAPES), _colour(draw, background)
    rgb = _shade(draw, colour, background)
    spots = _spots(draw, aspect, count)
    things = tuple(_thing(draw, name, colour, x, y, radius, background, rgb) for x, y, radius in spots)
    return Scene("several", things, background, aspect)


def _spots(draw: Draw, aspect: float, count: int) -> list[tuple[float, float, float]]:
    """Circles of about the same size that do not touch: middle and radius of each."""
    width, height = frame(aspect)
    most = {2: 0.22, 3: 0.19, 4: 0.17}[count]
    while True:
        size = draw.random.uniform(_LEAST_RADIUS, most)
        spots: list[tuple[float, float, float]] = []
        for _ in range(60):
            radius = max(_LEAST_RADIUS, size * draw.random.uniform(0.85, 1.1))
            x = draw.random.uniform(radius, width - radius)
            y = draw.random.uniform(radius, height - radius)
            if all(math.hypot(x - a, y - b) > radius + r + _GAP for a, b, r in spots):
                spots.append((x, y, radius))
                if len(spots) == count:
                    return spots


def _two_shapes(draw: Draw) -> Scene:
    aspect = _aspect(draw, 1.3)
    width, height = frame(aspect)
    background = _background(draw)
    relation = draw.choice(("left of", "above"))
    along, across = (width, height) if relation == "left of" else (height, width)
    radii = [draw.random.uniform(_LEAST_RADIUS, 0.21) * min(width, height) ** 0.5 for _ in range(2)]
    first = draw.random.uniform(radii[0], along - 2 * radii[1] - radii[0] - _GAP)
    second = draw.random.uniform(first + radii[0] + radii[1] + _GAP, along - radii[1])
    middle = draw.random.uniform(max(radii), across - max(radii))
    drift = draw.random.uniform(-0.3, 0.3) * (second - first)
    other = min(max(middle + drift, radii[1]), across - radii[1])
    names = draw.sample(SHAPES, 2)
    colours = [_colour(draw, background)]
    while len(colours) < 2:
        colour = _colour(draw, background)
        if colour not in colours:
            colours.append(colour)
    spots = [(first, middle), (second, other)]
    if relation == "above":
        spots = [(x, y) for y, x in spots]
    things = tuple(
        _thing(draw, name, colour, x, y, radius, background)
        for name, colour, (x, y), radius in zip(names, colours, spots, radii, strict=True)
    )
    return Scene("two", things, background, aspect, relation=relation)


def _digit(draw: Draw) -> Scene:
    aspect = _aspect(draw, 1.4)
    width, height = frame(aspect)
    background = _background(draw)
    radius = draw.random.uniform(0.25, 0.46) * min(width, height)
    x = width / 2 + draw.random.uniform(-1, 1) * (width / 2 - radius * 0.75)
    y = height / 2 + draw.random.uniform(-1, 1) * (height / 2 - radius)
    thing = _thing(draw, str(draw.between(0, 9)), _colour(draw, background), x, y, radius, background)
    return Scene("digit", (thing,), background, aspect)


def _nothing(draw: Draw) -> Scene:
    return Scene("nothing", (), _background(draw), _aspect(draw, 1.6))


_SCENES = {"one": _one_shape, "several": _several_shapes, "two": _two_shapes, "digit": _digit}


def _thing(
    draw: Draw,
    name: str,
    colour: str,
    x: float,
    y: float,
    radius: float,
    background: tuple[Rgb, Rgb],
    rgb: Rgb | None = None,
) -> Thing:
    turn = draw.random.gauss(0, 0.1)
    if name == "square" and draw.chance(0.1):
        turn += math.pi / 4
    return Thing(
        name,
        colour,
        rgb or _shade(draw, colour, background),
        x,
        y,
        radius,
        turn,
        draw.random.uniform(0.9, 1.1),
    )


def _aspect(draw: Draw, most: float) -> float:
    if draw.chance(0.65):
        return 1.0
    aspect = draw.random.uniform(1.0, most)
    return aspect if draw.chance(0.5) else 1 / aspect


def _rgb(draw: Draw, name: str) -> Rgb:
    hue, saturation, value = (draw.random.uniform(low, high) for low, high in COLOURS[name])
    return colorsys.hsv_to_rgb(hue / 360 % 1, saturation, value)


def _background(draw: Draw) -> tuple[Rgb, Rgb]:
    """The colours at two opposite edges; mostly the same."""
    roll = draw.random.random()
    if roll < 0.35:
        start = _rgb(draw, "white")
    elif roll < 0.5:
        start = _rgb(draw, "black")
    elif roll < 0.75:
        start = colorsys.hsv_to_rgb(
            draw.random.random(), draw.random.uniform(0, 0.3), draw.random.uniform(0.6, 1)
        )
    else:
        start = colorsys.hsv_to_rgb(
            draw.random.random(), draw.random.uniform(0, 1), draw.random.uniform(0.1, 1)
        )
    if draw.chance(0.85):
        return start, start
    shift = draw.random.uniform(-0.2, 0.2)
    red, green, blue = (min(1.0, max(0.0, part + shift)) for part in start)
    return start, (red, green, blue)


def contrast(rgb: Rgb, background: tuple[Rgb, Rgb]) -> float:
    """The lesser distance of a colour from the two of the background."""
    return min(math.dist(rgb, each) for each in background)


def _colour(draw: Draw, background: tuple[Rgb, Rgb]) -> str:
    """A colour that has a shade which stands out."""
    while True:
        colour = draw.choice(tuple(COLOURS))
        if max(contrast(_rgb(draw, colour), background) for _ in range(3)) > _LEAST_CONTRAST:
            return colour


def _shade(draw: Draw, colour: str, background: tuple[Rgb, Rgb]) -> Rgb:
    tries = [_rgb(draw, colour) for _ in range(2)]
    for rgb in tries:
        if contrast(rgb, background) > _LEAST_CONTRAST:
            return rgb
    return max((*tries, *(_rgb(draw, colour) for _ in range(6))), key=lambda rgb: contrast(rgb, background))
