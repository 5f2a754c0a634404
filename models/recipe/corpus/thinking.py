"""Short problems of two steps: the model thinks first, because the template or the user asks it to."""

from __future__ import annotations

from dataclasses import replace

from models.recipe.corpus.conversation import Conversation, ask
from models.recipe.corpus.draw import Draw

_THINGS = "apples pears books coins cards eggs pens stamps shells stones tickets cookies balls flowers buttons".split()
_ALOUD = (
    "Think step by step.",
    "Think first.",
    "Think before you answer.",
    "Please think step by step.",
    "Think about it.",
)


def generate(draw: Draw) -> Conversation:
    """A word problem or a chain of two sums within 0..20, thought through."""
    first = draw.between(3, 12)
    second, up = _step(draw, first)
    middle = first + second if up else first - second
    third, up_again = _step(draw, middle)
    last = middle + third if up_again else middle - third
    steps = f"{first} {'+' if up else '-'} {second} = {middle}\n{middle} {'+' if up_again else '-'} {third} = {last}"
    if draw.chance(0.6):
        thing, name = draw.choice(_THINGS), draw.given_name()
        text = draw.phrase(
            "{name} has {first} {thing}, " + _act(draw, up) + " {second} and then " + _act(draw, up_again) + " {third}. "
            "[How many {thing} does {name} have[| now]?|How many are there now?|How many {thing} are left?]",
            name=name, thing=thing, first=first, second=second, third=third,
        )  # fmt: skip
        answer = f"{name} has {last} {thing}."
    else:
        text = draw.phrase(
            "[What is|Calculate|Work out|How much is] {a} {s} {b} {t} {c}?",
            a=first, b=second, c=third, s="+" if up else "-", t="+" if up_again else "-",
        )  # fmt: skip
        answer = f"The result is {last}."
    if draw.chance(0.35):
        aloud = draw.choice(_ALOUD)
        text = f"{text} {aloud}" if draw.chance(0.7) else f"{aloud} {text}"
        return replace(ask(text, answer, thought=steps), think_aloud=True)
    return replace(ask(text, answer, thought=steps), thinking=True)


def _act(draw: Draw, up: bool) -> str:
    return draw.choice(("gets", "buys", "finds", "wins") if up else ("loses", "sells", "gives away", "drops"))


def _step(draw: Draw, value: int) -> tuple[int, bool]:
    """A step of 1..9 that stays within 0..20, and whether it goes up."""
    up = draw.chance(0.5)
    if (up and value > 18) or (not up and value < 2):
        up = not up
    return draw.between(1, min(9, 20 - value if up else value)), up
