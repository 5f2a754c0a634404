"""A scene as numbers: one value of each attribute, 0 where it does not apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.recipe.eye.scene import COLOURS, COUNTS, PLACES, SHAPES, Scene

_NAMES = (*SHAPES, *map(str, range(10)))
VALUES: Mapping[str, tuple[str, ...]] = {
    "kind": ("one", "several", "two", "digit"),
    "count": COUNTS,
    "name": _NAMES,
    "colour": tuple(COLOURS),
    "relation": ("left of", "above"),
    "other name": SHAPES,
    "other colour": tuple(COLOURS),
    "place": PLACES,
}
COLOUR_INDEXES = [index for index, name in enumerate(VALUES) if "colour" in name]
# The number of values of each attribute, with none.
SIZES: tuple[int, ...] = tuple(len(values) + 1 for values in VALUES.values())


def attributes_of(scene: Scene) -> list[int]:
    """The number of each attribute's value, in the order of :data:`SIZES`."""
    first, other = scene.things[:1], scene.things[1:] if scene.kind == "two" else ()
    found: Sequence[Sequence[str]] = (
        [scene.kind],
        [COUNTS[len(scene.things) - 1]] if scene.things else [],
        [thing.name for thing in first],
        [thing.colour for thing in first],
        [scene.relation],
        [thing.name for thing in other],
        [thing.colour for thing in other],
        [scene.place],
    )
    return [
        1 + values.index(value[0]) if value and value[0] in values else 0
        for values, value in zip(VALUES.values(), found, strict=True)
    ]
