"""Guesses what a sequence says next from what was said before: prompt lookup decoding (n-gram speculation).

The guess is a draft: it is computed with the newest token in one batch, and only what the sampler picks anyway is kept,
so that an answer does not depend on it. Saxena 2023, "Prompt Lookup Decoding"; llama.cpp's `lookup` example.
Pure: it reads tokens and counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from jan_serve.engine.tokens import Tokens

MIN_MATCH = 3
"""Tokens that must agree before a guess."""
MAX_DRAFT = 32
_MAX_MATCH = 32
_CANDIDATES = 8
# Lengths of agreement from which on a guess is taken for better, and how good it is before anything is known.
_CLASSES = ((3, 0.4), (5, 0.6), (9, 0.8), (17, 0.9))
_MODEL_SHARE = 0.7
_WEIGHT = 0.15


@dataclass(frozen=True, slots=True)
class Guess:
    """A continuation, and how many tokens before it agree with the sequence."""

    tokens: Tokens
    agreement: int


@dataclass(slots=True)
class DraftRecord:
    """How often the guesses about one sequence are right: the share per token, by length of agreement.

    agreement None stands for what a draft model says.
    """

    shares: list[float] = field(default_factory=lambda: [*(share for _, share in _CLASSES), _MODEL_SHARE])

    def share(self, agreement: int | None) -> float:
        """The share of drafted tokens that will be right, each provided that those before it were."""
        return self.shares[_class_of(agreement)]

    def observe(self, agreement: int | None, drafted: int, accepted: int) -> None:
        """So many tokens of a draft were right."""
        at = _class_of(agreement)
        for right in [1.0] * accepted + [0.0] * (accepted < drafted):
            self.shares[at] += _WEIGHT * (right - self.shares[at])


def _class_of(agreement: int | None) -> int:
    if agreement is None:
        return len(_CLASSES)
    return max(0, sum(agreement >= least for least, _ in _CLASSES) - 1)


def guess(tokens: Tokens, others: Iterable[Tokens] = ()) -> Guess | None:
    """What followed the longest earlier occurrence of the sequence's end: in itself, or else in `others`.

    Of several that agree equally long, the latest. At most MAX_DRAFT tokens.
    """
    if len(tokens) < MIN_MATCH:
        return None
    best = _search(tokens, tokens)
    for other in others:
        if best is None:
            best = _search(tokens, other)
    return best


def _search(tokens: Tokens, source: Tokens) -> Guess | None:
    ends = _occurrences(tokens[-MIN_MATCH:], source)
    best: Guess | None = None
    for end in reversed(ends[-_CANDIDATES:].tolist()):
        # An occurrence at the very end of the source is followed by nothing.
        if end >= len(source):
            continue
        agreement = _agreement(tokens, source[:end])
        if best is None or agreement > best.agreement:
            best = Guess(source[end : end + MAX_DRAFT], agreement)
    return best


def _occurrences(pattern: Tokens, source: Tokens) -> Tokens:
    """Positions right behind each occurrence."""
    count = len(source) - len(pattern) + 1
    if count <= 0:
        return np.empty(0, np.int32)
    same = source[len(pattern) - 1 :] == pattern[-1]
    for offset in range(len(pattern) - 1):
        same &= source[offset : offset + count] == pattern[offset]
    return (np.flatnonzero(same) + len(pattern)).astype(np.int32)


def _agreement(tokens: Tokens, before: Tokens) -> int:
    """Tokens at the end of both that are equal, up to a limit."""
    n = min(len(tokens), len(before), _MAX_MATCH)
    differs = tokens[-n:][::-1] != before[-n:][::-1]
    first = int(differs.argmax())
    return first if differs[first] else n


class StepCost:
    """Seconds of a decode step as a + b times its tokens: a regression over the last steps.

    Until steps of different sizes were seen, a token costs what it does in a prefill.
    """

    _KEEP = 0.98

    def __init__(self) -> None:
        self._weight = 0.0
        self._n = self._s = self._nn = self._ns = 0.0

    def observe(self, num_tokens: int, seconds: float) -> None:
        """A step of only decode took so long."""
        keep = self._KEEP
        self._weight = keep * self._weight + 1.0
        self._n = keep * self._n + num_tokens
        self._s = keep * self._s + seconds
        self._nn = keep * self._nn + num_tokens * num_tokens
        self._ns = keep * self._ns + num_tokens * seconds

    def token(self, prefill_token_s: float) -> float:
        """What one more token costs, in seconds."""
        spread = self._weight * self._nn - self._n * self._n
        if self._weight and spread > 0.01 * self._weight * self._weight:
            slope = (self._weight * self._ns - self._n * self._s) / spread
            return max(slope, 0.0)
        return prefill_token_s

    def step(self, num_tokens: int, token_s: float) -> float:
        """Seconds of a step of so many tokens."""
        if not self._weight:
            return token_s * num_tokens
        return max(0.0, self._s / self._weight + token_s * (num_tokens - self._n / self._weight))


def worthwhile(share: float, token_s: float, step_s: float, num_streams: int) -> int:
    """Length of a draft after which one more token costs more than it brings.

    A drafted token is right with `share` to the power of its place, and is worth the time that a token takes now.
    """
    worth = step_s / max(1, num_streams)
    if worth <= 0.0 or share <= 0.0:
        return 0
    if token_s <= 0.0 or share >= 1.0:
        return MAX_DRAFT if token_s < worth else 0
    return max(0, min(MAX_DRAFT, math.floor(math.log(token_s / worth) / math.log(share))))
