"""Scenes and their pictures: the same from the same seed, things apart, in the colours that they are named by."""

from __future__ import annotations

import colorsys
import math

import numpy as np
import pytest

from models.recipe.corpus.draw import Draw, is_held_out
from models.recipe.eye.attributes import SIZES, attributes_of
from models.recipe.eye.raster import rendered
from models.recipe.eye.scene import COLOURS, Kind, Scene, draw_scene, frame

KINDS: tuple[Kind, ...] = ("one", "several", "two", "digit")
CSS = {
    "red": (255, 0, 0),
    "orange": (255, 165, 0),
    "yellow": (255, 255, 0),
    "green": (0, 128, 0),
    "blue": (0, 0, 255),
    "purple": (128, 0, 128),
    "pink": (255, 192, 203),
    "brown": (165, 42, 42),
    "black": (0, 0, 0),
    "white": (255, 255, 255),
    "grey": (128, 128, 128),
}


def scenes(kind: Kind, count: int, *, held_out: bool = False) -> list[Scene]:
    draw = Draw(f"scenes-{kind}", held_out=held_out)
    return [draw_scene(draw, kind) for _ in range(count)]


def test_a_seed_gives_the_same_pictures() -> None:
    first, second, third = (Draw(seed, held_out=False) for seed in ("a", "a", "b"))
    drawn = [
        [rendered(draw, draw_scene(draw), size) for size in (32, 20, 50, 33)]
        for draw in (first, second, third)
    ]
    assert all(np.array_equal(one, other) for one, other in zip(drawn[0], drawn[1], strict=True))
    assert not all(np.array_equal(one, other) for one, other in zip(drawn[0], drawn[2], strict=True))


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_evaluated_is_not_in_the_corpus(kind: Kind, held_out: bool) -> None:
    assert all(is_held_out(scene.key) is held_out for scene in scenes(kind, 30, held_out=held_out))


@pytest.mark.parametrize("kind", KINDS)
def test_things_are_inside_the_frame_and_apart(kind: Kind) -> None:
    for scene in scenes(kind, 200):
        width, height = frame(scene.aspect)
        for thing in scene.things:
            assert 0 < thing.x < width and 0 < thing.y < height
        for index, thing in enumerate(scene.things):
            for other in scene.things[:index]:
                assert math.hypot(thing.x - other.x, thing.y - other.y) > thing.radius + other.radius


def test_the_relation_is_where_the_things_are() -> None:
    for scene in scenes("two", 200):
        first, second = scene.things
        across, down = second.x - first.x, second.y - first.y
        along, aside = (across, down) if scene.relation == "left of" else (down, across)
        assert along > 2 * abs(aside)


@pytest.mark.parametrize("name", sorted(COLOURS))
def test_a_range_holds_the_colour_that_css_calls_so(name: str) -> None:
    hue, saturation, value = colorsys.rgb_to_hsv(*(part / 255 for part in CSS[name]))
    hues, saturations, values = COLOURS[name]
    assert any(hues[0] <= each <= hues[1] for each in (hue * 360, hue * 360 + 360))
    assert saturations[0] <= saturation <= saturations[1]
    assert values[0] <= value <= values[1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_middle_of_a_shape_has_its_colour(kind: Kind) -> None:
    if kind == "digit":
        pytest.skip("a digit has holes")
    draw = Draw("middle", held_out=False)
    for scene in scenes(kind, 20):
        picture = rendered(draw, scene, 128).astype(int)
        for thing in scene.things:
            pixel = picture[int(thing.y * 128), int(thing.x * 128)]
            assert np.abs(pixel - np.array(thing.rgb) * 255).max() < 60


def test_attributes_tell_scenes_apart() -> None:
    by_key = {scene.key: tuple(attributes_of(scene)) for kind in KINDS for scene in scenes(kind, 100)}
    assert len(set(by_key.values())) == len(by_key)
    assert all(
        0 <= value < size for values in by_key.values() for value, size in zip(values, SIZES, strict=True)
    )
