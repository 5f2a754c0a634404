"""Sums up to twenty, comparisons, and lists to continue."""

from __future__ import annotations

from models.recipe.corpus.conversation import Conversation, ask
from models.recipe.corpus.draw import Draw
from models.recipe.corpus.phrasing import typed
from models.recipe.corpus.words import ADJECTIVES, COLOURS, DAYS, FOODS, MONTHS, NOUNS

_LIMIT = 20
_NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()


def generate_sum(draw: Draw) -> Conversation:
    """An addition or subtraction within 0..20, or which of two numbers is larger or smaller."""
    if draw.chance(0.15):
        return _comparison(draw)
    total = draw.between(0, _LIMIT)
    part = draw.between(0, total)
    adding = draw.chance(0.6)
    left, right, result = (part, total - part, total) if adding else (total, part, total - part)
    sign, word = ("+", "plus") if adding else ("-", "minus")
    patterns = (
        "What is {a} [{s}|{w}] {b}?",
        "What's {a} [{s}|{w}] {b}?",
        "[How much|What] is {a} {w} {b}?",
        "{a} {s} {b}",
        "{a} {s} {b} =",
        "{a}{s}{b}?",
        "{a} {w} {b}?",
        "[Calculate|Compute|Work out|Solve] {a} [{s}|{w}] {b}.",
        "Can you [calculate|compute|work out|solve] {a} {s} {b}?",
        "Tell me what {a} {s} {b} is.",
        "[Add {a} and {b}.|What is the sum of {a} and {b}?|Add {b} to {a}.]"
        if adding
        else "[Take {b} from {a}.|Subtract {b} from {a}.|What is {a} take away {b}?]",
    )
    in_words = draw.chance(0.1)
    a, b = (_NUMBER_WORDS[left], _NUMBER_WORDS[right]) if in_words else (left, right)
    question = draw.phrase(draw.choice(patterns).replace("{s}", sign).replace("{w}", word), a=a, b=b)
    fact = f"{left} {sign} {right} = {result}"
    return ask(typed(draw, question), fact + ".", thought=fact)


def _comparison(draw: Draw) -> Conversation:
    first, second = draw.between(0, _LIMIT), draw.between(0, _LIMIT)
    while second == first:
        second = draw.between(0, _LIMIT)
    larger = draw.chance(0.5)
    word = "larger" if larger else "smaller"
    patterns = (
        "Which is {word}, {a} or {b}?",
        "Which number is {word}: {a} or {b}?",
        "Is {a} or {b} {word}?",
        "Tell me which is {word}, {a} or {b}.",
        "What is {word}, {a} or {b}?",
    )
    question = draw.phrase(draw.choice(patterns), word=word, a=first, b=second)
    result = max(first, second) if larger else min(first, second)
    return ask(typed(draw, question), f"{result} is {word}.", thought=f"I compare {first} and {second}.")


def generate_list(draw: Draw) -> Conversation:
    """A list to continue with its next three entries."""
    shown, following = draw.choice((_counting, _counting, _letters, _calendar, _pattern))(draw)
    patterns = (
        "Continue[| the list| this list| the series| the sequence]: {list}",
        "[What comes next|What is next|What follows]: {list}",
        "[Go on|Carry on|Keep going]: {list}",
        "Complete [the|this] [list|series|sequence]: {list}",
        "{list} ... [continue|go on|what comes next?]",
        "[Give me|Write] the next three: {list}",
    )
    entries = ", ".join(shown) + draw.choice(("", ",", ", ...", ""))
    question = draw.phrase(draw.choice(patterns), list=entries)
    return ask(question, ", ".join(following), thought="I look for the rule of the list.")


def _counting(draw: Draw) -> tuple[list[str], list[str]]:
    step = draw.choice((1, 1, 2, 2, 5, 10, -1, -2))
    start = draw.between(0, 40) if step > 0 else draw.between(14, 40)
    if step in (5, 10):
        start = step * draw.between(0, 8)
    shown = draw.between(3, 5)
    values = [str(start + step * index) for index in range(shown + 3)]
    return values[:shown], values[shown:]


def _letters(draw: Draw) -> tuple[list[str], list[str]]:
    shown = draw.between(3, 5)
    start = draw.between(0, 26 - shown - 3)
    letters = [chr(ord("A") + start + index) for index in range(shown + 3)]
    if draw.chance(0.5):
        letters = [letter.lower() for letter in letters]
    return letters[:shown], letters[shown:]


def _calendar(draw: Draw) -> tuple[list[str], list[str]]:
    names = draw.choice((DAYS, MONTHS))
    start = draw.between(0, len(names) - 1)
    shown = draw.between(2, 4)
    values = [names[(start + index) % len(names)] for index in range(shown + 3)]
    return values[:shown], values[shown:]


def _pattern(draw: Draw) -> tuple[list[str], list[str]]:
    pool = draw.choice((COLOURS, FOODS, NOUNS, ADJECTIVES))
    period = draw.choice((2, 2, 3))
    cycle = draw.sample(pool, period)
    shown = period * 2 if period == 3 else 4
    values = [cycle[index % period] for index in range(shown + 3)]
    return values[:shown], values[shown:]
