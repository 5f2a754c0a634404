"""Questions about pictures: their split, and answers that follow from the scene."""

from __future__ import annotations

import pytest

from models.recipe.corpus.draw import Draw, is_held_out
from models.recipe.eye.questions import SKILLS_OF, Skill, draw_exchange
from models.recipe.eye.scene import Kind, Scene, Thing, draw_scene

WHITE = ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0))


def thing(name: str, colour: str, x: float = 0.5) -> Thing:
    return Thing(name, colour, (0.0, 0.0, 0.0), x, 0.5, 0.2, 0.0, 1.0)


ONE = Scene("one", (thing("star", "orange"),), WHITE, 1.0, place="at the top")
SEVERAL = Scene("several", (thing("cross", "blue"),) * 3, WHITE, 1.0)
TWO = Scene(
    "two", (thing("circle", "red", 0.2), thing("square", "blue", 0.8)), WHITE, 1.0, relation="left of"
)
DIGIT = Scene("digit", (thing("7", "green"),), WHITE, 1.0)
NOTHING = Scene("nothing", (), WHITE, 1.0)

ANSWERS: list[tuple[Scene, Skill, set[str]]] = [
    (ONE, "describe", {"I see an orange star."}),
    (ONE, "colour", {"The star is orange."}),
    (ONE, "shape", {"It is a star."}),
    (ONE, "count", {"There is one star.", "There is one shape."}),
    (ONE, "position", {"The star is at the top."}),
    (SEVERAL, "describe", {"I see three blue crosses."}),
    (SEVERAL, "count", {"There are three crosses.", "There are three shapes."}),
    (SEVERAL, "shape", {"They are crosses."}),
    (SEVERAL, "colour", {"The crosses are blue."}),
    (TWO, "describe", {"I see a red circle left of a blue square."}),
    (TWO, "colour", {"The circle is red.", "The square is blue."}),
    (TWO, "shape", {"It is the red circle.", "It is the blue square."}),
    (TWO, "count", {"There are two shapes."}),
    (TWO, "position", {"The circle is left of the square.", "The square is right of the circle."}),
    (DIGIT, "describe", {"I see the digit 7 in green."}),
    (DIGIT, "digit", {"It is the digit 7."}),
    (DIGIT, "colour", {"The digit is green."}),
    (NOTHING, "describe", {"I see nothing."}),
]


@pytest.mark.parametrize(("scene", "skill", "answers"), ANSWERS)
def test_answers_follow_from_the_scene(scene: Scene, skill: Skill, answers: set[str]) -> None:
    draw = Draw("answers", held_out=False)
    assert {draw_exchange(draw, scene, skill).answer for _ in range(60)} == answers


@pytest.mark.parametrize("held_out", [False, True])
def test_wordings_are_split(held_out: bool) -> None:
    draw = Draw("split", held_out=held_out)
    for _ in range(100):
        assert is_held_out(draw_exchange(draw, draw_scene(draw)).question) is held_out


def test_no_question_is_left_with_a_slot_or_a_choice() -> None:
    draw = Draw("slots", held_out=False)
    kinds: tuple[Kind, ...] = ("one", "several", "two", "digit", "nothing")
    for kind in kinds:
        for skill in set(SKILLS_OF[kind]):
            for _ in range(100):
                exchange = draw_exchange(draw, draw_scene(draw, kind), skill)
                assert not set("[]{}|") & set(exchange.question + exchange.answer), exchange
