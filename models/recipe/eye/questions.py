"""Questions about a scene, in many wordings, and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from models.recipe.corpus.draw import Draw, is_held_out
from models.recipe.corpus.phrasing import shouted
from models.recipe.eye.scene import COUNTS, OPPOSITE, Kind, Scene, Thing, article, plural

Skill = Literal["describe", "colour", "shape", "count", "digit", "position"]

_PICTURE = "[picture|image|photo|drawing]"
_DESCRIBE = (
    f"What is [in|on] [this|the|my] {_PICTURE}?",
    f"What's [in|on] [this|the] {_PICTURE}?",
    f"What do you see[| in this {_PICTURE}| in the {_PICTURE}| here]?",
    f"[Describe|Describe briefly|Look at] [this|the|my] {_PICTURE}.",
    f"What does [this|the] {_PICTURE} show?",
    "What is [this|that|it|shown here]?",
    f"[Tell me|Say] what [is in this {_PICTURE}|you see|this is|this {_PICTURE} shows].",
    f"Can you [see|describe|tell me what is in] [this|the] {_PICTURE}?",
    f"[Caption|Explain] this {_PICTURE}.",
    "What can you see?",
)
_COLOUR_OF = (
    "[What|Which] colour [is|has] the {noun}?",
    "What [color|colour] is the {noun}?",
    "[Tell me|Say] the colour of the {noun}.",
    "What is the [colour|color] of the {noun}?",
    "[Name|Give me] the [colour|color] of the {noun}.",
)
_COLOURS_OF = (
    "[What|Which] [colour|color] are the {noun}?",
    "[Tell me|Say] the colour of the {noun}.",
    "What is the [colour|color] of the {noun}?",
)
_COLOUR_OF_IT = (
    "[What|Which] colour is [it|this|that]?",
    "What [color|colour] is [it|this]?",
    f"What colour [do you see|is in this {_PICTURE}|is shown]?",
    "Which colour does it have?",
)
_SHAPE = (
    "[What|Which] shape is [it|this|that|shown]?",
    f"[What|Which] shape [do you see|is in this {_PICTURE}|can you see]?",
    "[Tell me|Say|Name] the shape.",
    "What is the shape?",
    "What kind of shape is [it|this]?",
)
_SHAPE_OF_COLOUR = (
    "[What|Which] shape is {colour}?",
    "What is {colour}?",
    "[Which one|What thing] is {colour}?",
    "What is the {colour} shape?",
    "[What|Which] shape has the colour {colour}?",
)
_COUNT = (
    "How many {nouns} [are there|do you see|are in this {picture}|can you see|are shown]?",
    "[Count|Please count] the {nouns}.",
    "How many {nouns}?",
    "What is the number of {nouns}?",
    "[Tell me|Say] how many {nouns} there are.",
)
_DIGIT = (
    "[What|Which] [digit|number] is [this|it|that|shown]?",
    f"[What|Which] [digit|number] [do you see|is in this {_PICTURE}|is on this {_PICTURE}|can you read]?",
    "[Read|Name|Tell me] the [digit|number].",
    f"[What does it say|What is written here|What is written in this {_PICTURE}|Read this]?",
)
_WHERE = (
    "Where is the {noun}?",
    "[Tell me|Say] where the {noun} is.",
    "Where [do you see|can you see|is] the {noun}?",
)
_WHERE_IS_IT = ("Where is [it|the shape]?", f"Where in [the|this] {_PICTURE} is [it|the shape]?")
_WHICH_SIDE = (
    "Is the {noun} {first} or {second} the {other}?",
    "Is the {noun} {second} or {first} the {other}?",
    "How [does|is] the {noun} [lie|placed] relative to the {other}?",
)
_WHAT_IS_THERE = (
    "[What|Which shape] is {relation} the {other}?",
    "What [do you see|can you see|lies] {relation} the {other}?",
)


THOUGHT = "I look at the picture."


@dataclass(frozen=True)
class Exchange:
    """A question about a picture, and its answer. ``THOUGHT`` is what the model thinks before it, if it is to think."""

    skill: Skill
    question: str
    answer: str


def draw_exchange(draw: Draw, scene: Scene, skill: Skill | None = None) -> Exchange:
    """A question in a wording on the side of the split that ``draw`` stands on.

    A given ``skill`` is one that :data:`SKILLS_OF` has for the scene's kind.
    """
    chosen = skill or draw.choice(SKILLS_OF[scene.kind])
    while True:
        question, answer = _MAKERS[chosen](draw, scene)
        question = shouted(draw, question)
        if is_held_out(question) == draw.held_out:
            return Exchange(chosen, question, answer)


# What is asked about each kind of scene; what is listed twice comes twice as often.
SKILLS_OF: dict[str, tuple[Skill, ...]] = {
    "one": ("describe", "colour", "shape", "position", "count"),
    "several": ("describe", "count", "count", "colour", "shape"),
    "two": ("describe", "position", "position", "colour", "shape", "shape", "count"),
    "digit": ("describe", "digit", "digit", "colour"),
    "nothing": ("describe",),
}


# What is measured on held-out scenes: name of the row, least share in percent, what is asked, of which kinds of
# pictures.
ROWS: tuple[tuple[str, float | None, Skill, tuple[Kind, ...]], ...] = (
    ("colour", 95, "colour", ("one", "several", "two", "digit")),
    ("shape", 95, "shape", ("one", "several", "two")),
    ("count from one to four", 90, "count", ("one", "several", "several", "several", "two")),
    ("digit", 90, "digit", ("digit",)),
    ("left, right, above, below: two shapes", 90, "position", ("two",)),
    ("place of one shape", 90, "position", ("one",)),
    ("what is in this picture, in a sentence", None, "describe", ("one", "several", "two", "digit")),
)


def _describe(draw: Draw, scene: Scene) -> tuple[str, str]:
    return draw.phrase(draw.choice(_DESCRIBE)), f"I see {scene.caption()}."


def _noun(scene: Scene, thing: Thing) -> str:
    if scene.kind == "digit":
        return "digit"
    return plural(thing.name) if scene.kind == "several" else thing.name


def _colour(draw: Draw, scene: Scene) -> tuple[str, str]:
    thing = draw.choice(scene.things)
    noun = _noun(scene, thing)
    several = scene.kind == "several"
    asked = draw.phrase(draw.choice(_COLOURS_OF if several else _COLOUR_OF), noun=noun)
    if scene.kind != "two":
        if draw.chance(0.35):
            asked = draw.phrase(draw.choice(_COLOUR_OF_IT))
        elif draw.chance(0.3):
            asked = draw.phrase(
                draw.choice(_COLOURS_OF if several else _COLOUR_OF),
                noun="number" if scene.kind == "digit" else "shapes" if several else "shape",
            )
    return asked, f"The {noun} {'are' if several else 'is'} {thing.colour}."


def _shape(draw: Draw, scene: Scene) -> tuple[str, str]:
    thing = draw.choice(scene.things)
    if scene.kind == "two":
        # What is asked for follows what it depends on at once: the model copies what stood after that before.
        asked = draw.phrase(draw.choice(_SHAPE_OF_COLOUR), colour=thing.colour)
        return asked, f"It is the {thing.colour} {thing.name}."
    asked = draw.phrase(draw.choice(_SHAPE))
    if scene.kind == "several":
        return draw.phrase(
            "[What|Which] shapes [are these|do you see|are they|are there]?"
        ), f"They are {plural(thing.name)}."
    return asked, f"It is {article(thing.name)} {thing.name}."


def _count(draw: Draw, scene: Scene) -> tuple[str, str]:
    count = len(scene.things)
    name = scene.things[0].name
    if scene.kind == "two" or draw.chance(0.4):
        name = "shape"
    nouns = plural(name)
    if scene.kind == "several" and draw.chance(0.2):
        nouns = f"{scene.things[0].colour} {nouns}"
    asked = draw.phrase(draw.choice(_COUNT).replace("{picture}", _PICTURE), nouns=nouns)
    return asked, f"There is one {name}." if count == 1 else f"There are {COUNTS[count - 1]} {plural(name)}."


def _digit(draw: Draw, scene: Scene) -> tuple[str, str]:
    return draw.phrase(draw.choice(_DIGIT)), f"It is the digit {scene.things[0].name}."


def _position(draw: Draw, scene: Scene) -> tuple[str, str]:
    if scene.kind == "one":
        noun = scene.things[0].name
        pattern = draw.choice(_WHERE if draw.chance(0.6) else _WHERE_IS_IT)
        return draw.phrase(pattern, noun=noun), f"The {noun} is {scene.place}."
    noun, relation, other = _related(draw, scene)
    answer = f"The {noun} is {relation} the {other}."
    roll = draw.random.random()
    if roll < 0.4:
        return draw.phrase(draw.choice(_WHERE), noun=noun), answer
    if roll < 0.7:
        return draw.phrase(draw.choice(_WHAT_IS_THERE), relation=relation, other=other), answer
    asked = draw.phrase(
        draw.choice(_WHICH_SIDE),
        noun=noun,
        other=other,
        first=relation.removesuffix(" of"),
        second=OPPOSITE[relation],
    )
    return asked, answer


def _related(draw: Draw, scene: Scene) -> tuple[str, str, str]:
    """One thing of two, how it lies to the other, and the other one."""
    first, second = (thing.name for thing in scene.things)
    if draw.chance(0.5):
        return first, scene.relation, second
    return second, OPPOSITE[scene.relation], first


_MAKERS = {
    "describe": _describe,
    "colour": _colour,
    "shape": _shape,
    "count": _count,
    "digit": _digit,
    "position": _position,
}
