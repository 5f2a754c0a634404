"""Questions about facts stated two or more turns earlier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from models.recipe.corpus import facts, identity, numbers, small_talk
from models.recipe.corpus.conversation import Conversation, Turn
from models.recipe.corpus.draw import Draw, on_our_side
from models.recipe.corpus.phrasing import typed
from models.recipe.corpus.words import COLOURS, FOODS, JOBS


@dataclass(frozen=True)
class _Slot:
    """One thing to remember: sentences that state, acknowledge, ask for and recall it. Values are copied verbatim."""

    value: Callable[[Draw], str]
    tell: tuple[str, ...]
    acknowledge: str
    ask: tuple[str, ...]
    recall: str


_SLOTS = (
    _Slot(
        lambda draw: draw.given_name() if draw.chance(0.7) else draw.full_name(),
        (
            "My name is {v}.",
            "I am {v}.",
            "Call me {v}.",
            "[Hi|Hello], I am {v}.",
            "I'm {v}[, nice to meet you|].",
            "My name's {v}.",
            "You can call me {v}.",
            "[Hi|Hello], my name is {v}.",
        ),
        "Nice to meet you, {v}!",
        (
            "What is my name?",
            "What's my name?",
            "Who am I?",
            "Do you [remember|know|still know] my name?",
            "How am I called?",
            "Tell me my name.",
            "What did I say my name was?",
            "Say my name.",
        ),
        "Your name is {v}.",
    ),
    _Slot(
        lambda draw: draw.choice(COLOURS),
        (
            "My favourite colour is {v}.",
            "I like {v} best of all colours.",
            "I love the colour {v}.",
            "The colour I like most is {v}.",
        ),
        "{v} is a nice colour. I will remember it.",
        (
            "What is my favourite colour?",
            "Which colour do I like [best|most]?",
            "What's my favourite colour?",
            "Do you remember my favourite colour?",
            "Which colour did I name?",
            "Tell me my favourite colour.",
        ),
        "Your favourite colour is {v}.",
    ),
    _Slot(
        Draw.city,
        (
            "I live in {v}.",
            "My home is in {v}.",
            "I am from {v}.",
            "I come from {v}.",
            "My city is {v}.",
            "I just moved to {v}.",
        ),
        "{v}, I will remember that.",
        (
            "Where do I live?",
            "Which city do I live in?",
            "What is my city?",
            "Where am I from?",
            "Do you remember where I live?",
            "Where is my home?",
            "Which city did I name?",
        ),
        "You live in {v}.",
    ),
    _Slot(
        Draw.given_name,
        (
            "My pet is called {v}.",
            "I have a pet called {v}.",
            "The name of my pet is {v}.",
            "My pet's name is {v}.",
        ),
        "{v} is a lovely name for a pet.",
        (
            "What is my pet called?",
            "What is the name of my pet?",
            "What's my pet's name?",
            "How is my pet called?",
            "Do you remember my pet's name?",
            "Who is my pet?",
        ),
        "Your pet is called {v}.",
    ),
    _Slot(
        lambda draw: draw.choice(FOODS),
        (
            "My favourite food is {v}.",
            "I love [eating|to eat] {v}.",
            "I like to eat {v} [most|best].",
            "The food I like most is {v}.",
        ),
        "I will remember that you like {v}.",
        (
            "What is my favourite food?",
            "What do I like to eat?",
            "What's my favourite food?",
            "Do you remember my favourite food?",
            "Which food do I like [best|most]?",
            "Which food did I name?",
        ),
        "Your favourite food is {v}.",
    ),
    _Slot(
        lambda draw: draw.choice(JOBS),
        ("I work as a {v}.", "I am a {v}[| by trade].", "My job is {v}.", "I earn my living as a {v}."),
        "A {v}, that sounds interesting.",
        (
            "What is my job?",
            "What do I work as?",
            "What's my job?",
            "Do you remember my job?",
            "What do I do for a living?",
            "What is my work?",
        ),
        "You work as a {v}.",
    ),
    _Slot(
        lambda draw: str(draw.number(2, 999)),
        (
            "My number is {v}.",
            "Remember the number {v}.",
            "Please [remember|keep in mind] this number: {v}.",
            "The number is {v}.",
        ),
        "I will remember {v}.",
        (
            "What is [my|the] number?",
            "Which number did I [tell you|say|give you]?",
            "What was [my|the] number?",
            "Do you remember [my|the] number?",
            "Tell me [my|the] number.",
        ),
        "The number is {v}.",
    ),
    _Slot(
        lambda draw: draw.title() if draw.chance(0.5) else draw.invented(),
        (
            "The password is {v}.",
            "Remember the [code word|password]: {v}.",
            "Our password is {v}.",
            "The secret word is {v}.",
        ),
        "I will remember {v}.",
        (
            "What is [the|our] [password|secret word|code word]?",
            "What was [the|our] [password|secret word|code word]?",
            "Which [word|password] did I tell you?",
            "Do you remember [the|our] password?",
        ),
        "It is {v}.",
    ),
    _Slot(
        lambda draw: draw.given_name(),
        (
            "My [best|] friend is called {v}.",
            "My friend's name is {v}.",
            "I have a friend called {v}.",
            "The name of my friend is {v}.",
        ),
        "{v} is a nice name.",
        (
            "What is my friend called?",
            "What is my friend's name?",
            "Who is my friend?",
            "What is the name of my friend?",
            "Do you remember my friend's name?",
        ),
        "Your friend is called {v}.",
    ),
)
_FILLERS = (identity.generate, small_talk.generate, facts.generate, facts.generate, numbers.generate_sum)


def generate(draw: Draw) -> Conversation:
    """One or two facts, one to three other exchanges, then a question about one of the facts."""
    told = draw.sample(_SLOTS, draw.choice((1, 1, 2, 2, 3)))
    values = [slot.value(draw) for slot in told]
    turns: list[Turn] = []
    for slot, value in zip(told, values, strict=True):
        said = draw.phrase(draw.choice(slot.tell), v=value).replace("  ", " ")
        turns += [Turn("user", said), Turn("assistant", _sentence(slot.acknowledge.format(v=value)))]
    least = 1 if len(told) > 1 else draw.choice((0, 1))
    for _ in range(draw.between(least, 3)):
        turns += on_our_side(draw, draw.choice(_FILLERS)).turns
    asked = draw.between(0, len(told) - 1)
    turns.append(Turn("user", typed(draw, draw.phrase(draw.choice(told[asked].ask)))))
    turns.append(Turn("assistant", told[asked].recall.format(v=values[asked])))
    return Conversation(tuple(turns), thought="The user told me this before.")


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
