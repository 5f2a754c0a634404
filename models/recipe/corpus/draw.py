"""Seeded choices for the generators: names and numbers that are split into training and held-out by their hash."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from models.recipe.corpus import words

T = TypeVar("T")

_HELD_OUT_SHARE = 10  # one in ten
_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_ONSETS = (
    "b c d f g h j k l m n p r s t v w y z br ch cl dr fl fr gr kr pl pr sh sk sl st th tr sw v z".split()
)
_VOWELS = "a e i o u a e i o u ai au ea ei ia ie io ou ee oo y".split()
_CODAS = "n r s l t m d k x th nd rt st ng ck ll".split()
_PLAIN_WORDS = words.plain_words()
_ACCENTED = {"a": "á", "e": "é", "i": "í", "o": "ö", "u": "ü", "n": "ñ"}


def is_held_out(text: str) -> bool:
    """Whether a name, number or prompt belongs to the evaluation and never to the corpus."""
    return zlib.crc32(text.lower().encode()) % _HELD_OUT_SHARE == 0


class Draw:
    """A seeded source of values. ``held_out`` picks which side of the split names and numbers come from.

    ``pieces``: the lower-case letters of the tokens that training reads with, of which some names are then put together,
    so that each token is copied often, however rare it is in the sentences.
    """

    def __init__(self, seed: int | str, *, held_out: bool, pieces: Sequence[str] = ()) -> None:
        self.random = random.Random(seed)
        self.held_out = held_out
        self._pieces = pieces

    def choice(self, options: Sequence[T]) -> T:
        return options[self.random.randrange(len(options))]

    def sample(self, options: Sequence[T], count: int) -> list[T]:
        return self.random.sample(options, count)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def between(self, low: int, high: int) -> int:
        """A number from low to high inclusive, from either side of the split."""
        return self.random.randint(low, high)

    def number(self, low: int, high: int) -> int:
        """A number from low to high inclusive on this side of the split; the range must hold some of each."""
        return self._on_our_side(lambda: self.random.randint(low, high))

    def phrase(self, pattern: str, **slots: object) -> str:
        """Expand ``[one|other|]`` choices (they nest), then fill the ``{slots}``."""
        while match := _CHOICE.search(pattern):
            pattern = pattern[: match.start()] + self.choice(match[1].split("|")) + pattern[match.end() :]
        return pattern.format(**slots) if slots else pattern

    def invented(self) -> str:
        """A word that means nothing, two to four syllables, lower case."""
        return self._on_our_side(self._syllables)

    def given_name(self) -> str:
        if self.chance(0.45):
            return self._listed(words.GIVEN_NAMES)
        return self._maybe_accented(self.invented().capitalize())

    def family_name(self) -> str:
        roll = self.random.random()
        if roll < 0.4:
            return self._listed(words.FAMILY_NAMES)
        name = self._maybe_accented(self.invented().capitalize())
        if roll < 0.45:
            return name + "-" + self.invented().capitalize()
        return self.choice(("O'", "Mc", "van ", "de ")) + name if roll < 0.5 else name

    def full_name(self) -> str:
        return f"{self.given_name()} {self.family_name()}"

    def city(self) -> str:
        if self.chance(0.35):
            return self._listed(words.CITIES)
        name = self.invented().capitalize()
        return self.choice(("New ", "Port ", "San ", "East ")) + name if self.chance(0.08) else name

    def email(self, name: str) -> str:
        """An address that may or may not be made from the name."""
        parts = re.sub("[^a-z ]", "", name.lower()).split()
        given, family = parts[0] if parts else "me", parts[-1] if parts else "me"
        local = self.choice(
            (
                f"{given}.{family}",
                f"{given}{family}",
                f"{given[:1]}{family}",
                given,
                f"{given}_{family[:1]}",
                "",
            )
        )
        if not local or self.chance(0.15):
            local = self.invented()
        if self.chance(0.3):
            local += str(self.between(1, 99))
        domain = self.choice(words.MAIL_HOSTS) if self.chance(0.4) else self.invented()
        return f"{local}@{domain}.{self.choice(words.TOP_LEVEL_DOMAINS)}"

    def title(self) -> str:
        """A name of a thing: one to three words, invented or everyday."""
        if self.chance(0.4):
            return self.invented().capitalize()
        first, second = self.choice(words.ADJECTIVES), self.choice(words.NOUNS)
        return (
            f"{first} {second}".title()
            if self.chance(0.5)
            else f"{self.invented().capitalize()} {second.title()}"
        )

    def _listed(self, options: Sequence[str]) -> str:
        return self._on_our_side(lambda: self.choice(options))

    def _on_our_side(self, make: Callable[[], T]) -> T:
        while True:
            value = make()
            if is_held_out(str(value)) == self.held_out:
                return value

    def _syllables(self) -> str:
        if self._pieces and self.chance(0.3):
            return self._of_pieces()
        if self.chance(0.35):
            return self._fragments()
        count = self.choice((2, 2, 2, 3, 3, 4) if self.chance(0.9) else (1,))
        text = "".join(self.choice(_ONSETS) + self.choice(_VOWELS) for _ in range(count))
        if self.chance(0.5) or count == 1:
            text += self.choice(_CODAS)
        if self.chance(0.25):
            text = self.choice("aeiou") + text
        return text[:12]

    def _of_pieces(self) -> str:
        """Tokens in any order, until there are at least two letters."""
        text = self.choice(self._pieces)
        for _ in range(self.choice((0, 1, 1, 2))):
            text += self.choice(self._pieces)
        return text[:16] if len(text) > 1 else text + self.choice(self._pieces)

    def _fragments(self) -> str:
        """One to three slices of ordinary words, so that every piece that a real name may hold is copied at times."""
        if self.chance(0.15):
            return self.choice(words.SENTENCE_STARTS)
        text = ""
        for _ in range(self.choice((1, 2, 2, 3))):
            word = self.choice(_PLAIN_WORDS)
            start = self.between(0, max(0, len(word) - 3))
            text += word[start : start + self.between(2, 5)]
        return text[:12]

    def _maybe_accented(self, name: str) -> str:
        if not self.chance(0.05):
            return name
        spots = [index for index, letter in enumerate(name) if letter in _ACCENTED]
        if not spots:
            return name
        spot = self.choice(spots)
        return name[:spot] + _ACCENTED[name[spot]] + name[spot + 1 :]


class Keyed(Protocol):
    """An example that the split can tell apart by its text."""

    @property
    def key(self) -> str: ...


K = TypeVar("K", bound=Keyed)


def on_our_side(draw: Draw, generate: Callable[[Draw], K]) -> K:
    """An example whose text is on the side of the split that ``draw`` stands on; for finite sets of questions."""
    while True:
        example = generate(draw)
        if is_held_out(example.key) == draw.held_out:
            return example


class NamelessDraw(Draw):
    """Writes digits for every name, so that the tokenizer learns no piece of one: all names are spelled alike."""

    def _syllables(self) -> str:
        return "0" * 5

    def _listed(self, options: Sequence[str]) -> str:
        return "0" * 5

    def _on_our_side(self, make: Callable[[], T]) -> T:
        return make()
