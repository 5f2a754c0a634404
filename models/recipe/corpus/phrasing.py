"""Everyday noise around a question: greetings, politeness, case and punctuation, as people type."""

from __future__ import annotations

from models.recipe.corpus.draw import Draw

_OPENERS = (
    "Hi, ",
    "Hello, ",
    "Hey, ",
    "Hi! ",
    "Hello! ",
    "Please, ",
    "OK, ",
    "So, ",
    "Um, ",
    "Quick question: ",
    "Well, ",
)
_CLOSERS = (" please", ", please", " thanks", ", thank you")


def typed(draw: Draw, text: str) -> str:
    """The sentence as someone might type it. Names in it keep their case only where the sentence does."""
    roll = draw.random.random()
    mark = text[-1] if text[-1] in "?.!" else ""
    body = text[: len(text) - len(mark)]
    if roll < 0.15:
        body = draw.choice(_OPENERS) + body[0].lower() + body[1:] if not body.startswith("I ") else body
    elif roll < 0.22:
        body += draw.choice(_CLOSERS)
    if draw.chance(0.2):
        body = body[0].lower() + body[1:]
    if draw.chance(0.15):
        mark = ""
    return body + mark


def shouted(draw: Draw, text: str) -> str:
    """Like :func:`typed`, at times all lower case: only for sentences whose answer does not copy from them."""
    text = typed(draw, text)
    return text.lower() if draw.chance(0.15) else text
