"""Words, names and numbers to say again: the plainest form of copying, which every other skill needs."""

from __future__ import annotations

from models.recipe.corpus.conversation import Conversation, ask
from models.recipe.corpus.draw import Draw

_PATTERNS = (
    "[Repeat|Repeat this|Repeat after me|Say|Say this|Say after me|Write|Write this|Copy|Copy this|Echo]: {text}",
    "[Repeat|Say|Write|Copy|Echo] '{text}'[.|]",
    "{text}\n\n[Repeat|Copy] [that|this|the line][.|]",
    "[Can you|Please] [repeat|copy] this: {text}",
)


def generate(draw: Draw) -> Conversation:
    """One to five things to repeat exactly."""
    makers = (
        draw.invented,
        draw.invented,
        draw.given_name,
        draw.family_name,
        draw.city,
        lambda: str(draw.number(1, 9999)),
        lambda: draw.email(draw.full_name()),
        draw.title,
    )
    separator = draw.choice((" ", " ", ", ", "; "))
    text = separator.join(draw.choice(makers)() for _ in range(draw.between(1, 5)))
    return ask(draw.phrase(draw.choice(_PATTERNS), text=text), text, thought="I repeat it.")
