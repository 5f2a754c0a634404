"""The tokenisations of the options of one question as a tree, and the probabilities of its paths. Pure.

The probability of an option is that of all token sequences that spell it: the answer begins with the option, at the end
of a token, and with no longer option. A sequence counts for the last option that it passes.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Path = tuple[int, ...]

MAX_NODES: Final = 96
"""Most paths of a question that are computed, beside those of the vocabulary's own tokenisations."""
NEGLIGIBLE: Final = 1e-6
"""A share of the options' probability below which a path is not followed."""
_EXACT: Final = 1e-4
"""The share that may be missing in a sum of all tokenisations."""


class SpelledOption:
    """An option as text and as tokens. spellings: the texts that count as it, as bytes. canonical: the vocabulary's own
    tokenisation, which spells one of them.
    """

    __slots__ = ("canonical", "spellings")

    def __init__(self, spellings: tuple[bytes, ...], canonical: Path) -> None:
        self.spellings = spellings
        self.canonical = canonical


class _Node:
    """A path. passed: the option that it has spelled last."""

    __slots__ = ("is_canonical", "log_p", "passed", "spelled")

    def __init__(self, spelled: bytes, log_p: float, passed: int | None, *, is_canonical: bool) -> None:
        self.spelled = spelled
        self.log_p = log_p
        self.passed = passed
        self.is_canonical = is_canonical


class OptionTree:
    """Give it the logits after the paths of `next_paths` and their `missing` beginnings, until there are none."""

    # longest: max tokens of a path. counts: by option, the tokenisations that were added up.

    def __init__(
        self, options: Sequence[SpelledOption], pieces: Mapping[bytes, Sequence[int]], *, canonical_only: bool
    ) -> None:
        """pieces: the tokens of each text, without control tokens."""
        self._options = options
        self._pieces = pieces
        self._canonical_only = canonical_only
        paths = [option.canonical for option in options]
        self._inner: set[Path] = {path[:end] for path in paths for end in range(len(path))}
        self._ends = set(paths)
        followed = {path[:-1] for path in self._inner if path}
        self._chains = sorted(self._inner - followed)
        self._texts = {text: index for index, option in enumerate(options) for text in option.spellings}
        self._nodes: dict[Path, _Node] = {(): _Node(b"", 0.0, None, is_canonical=True)}
        self._all = [-math.inf] * len(options)
        self._canonical = [-math.inf] * len(options)
        self._removed = [-math.inf] * len(options)
        self._removed_canonical = [-math.inf] * len(options)
        self.counts = [0] * len(options)
        self._waiting: list[tuple[float, int, Path]] = []
        self._order = itertools.count()
        self._num_followed = 0
        self.longest = max(len(text) for text in self._texts)
        self._computed: set[Path] = set()

    def next_paths(self, most: int) -> list[Path]:
        """The canonical paths, then the others, the most probable first."""
        if self._chains:
            taken, self._chains = self._chains[:most], self._chains[most:]
            return taken
        taken: list[Path] = []
        while self._waiting and len(taken) < most and self._num_followed < MAX_NODES:
            negative, _, path = self._waiting[0]
            if -negative < self._total() + math.log(NEGLIGIBLE):
                break
            heapq.heappop(self._waiting)
            self._num_followed += 1
            taken.append(path)
        return taken

    def missing(self, path: Path) -> list[Path]:
        """The beginnings of a path, and the path itself, whose logits are still needed, the shortest first."""
        beginnings = [path[:end] for end in range(len(path) + 1)]
        return [beginning for beginning in beginnings if beginning not in self._computed]

    def add_logits(self, path: Path, logits: Floats) -> None:
        """The logits after a path: its next tokens get their probabilities. Ignored if they are known."""
        if path in self._computed:
            return
        node = self._nodes[path]
        self._computed.add(path)
        highest = float(logits.max())
        log_sum = highest + math.log(float(np.exp(logits - np.float32(highest)).sum(dtype=np.float64)))
        for token, text, ends, goes_on in self._steps(node.spelled):
            log_p = node.log_p + float(logits[token]) - log_sum
            next_path = (*path, token)
            is_canonical = node.is_canonical and (next_path in self._inner or next_path in self._ends)
            spelled = self._texts[text] if ends else None
            if spelled is not None:
                self._count(spelled, node.passed, log_p, is_canonical=is_canonical)
            if goes_on:
                passed = node.passed if spelled is None else spelled
                self._nodes[next_path] = _Node(text, log_p, passed, is_canonical=is_canonical)
                if not self._canonical_only and next_path not in self._inner:
                    heapq.heappush(self._waiting, (-log_p, next(self._order), next_path))

    def result(self) -> tuple[list[float], bool]:
        """Logarithm of the probability of each option, and whether all tokenisations are in it."""
        missing = _log_add(-negative for negative, _, _ in self._waiting)
        is_exact = not self._canonical_only and missing <= self._total() + math.log(_EXACT)
        sums, removed = (self._all, self._removed) if is_exact else (self._canonical, self._removed_canonical)
        if not is_exact:
            self.counts = [1] * len(self._options)
        return [_log_subtract(one, other) for one, other in zip(sums, removed, strict=True)], is_exact

    def _steps(self, spelled: bytes) -> Iterator[tuple[int, bytes, bool, bool]]:
        """The tokens that continue a spelling: with the text so far, whether it is an option, whether one goes on."""
        texts = [text for text in self._texts if text.startswith(spelled) and len(text) > len(spelled)]
        found = {text[:end] for text in texts for end in range(len(spelled) + 1, len(text) + 1)}
        for text in found:
            goes_on = any(other.startswith(text) and len(other) > len(text) for other in texts)
            for token in self._pieces.get(text[len(spelled) :], ()):
                yield token, text, text in self._texts, goes_on

    def _count(self, option: int, passed: int | None, log_p: float, *, is_canonical: bool) -> None:
        self.counts[option] += 1
        self._all[option] = _log_add((self._all[option], log_p))
        if passed is not None and passed != option:
            self._removed[passed] = _log_add((self._removed[passed], log_p))
        if is_canonical:
            self._canonical[option] = _log_add((self._canonical[option], log_p))
            if passed is not None and passed != option:
                self._removed_canonical[passed] = _log_add((self._removed_canonical[passed], log_p))

    def _total(self) -> float:
        return _log_add(self._all)


def _log_add(values: Iterator[float] | Sequence[float]) -> float:
    numbers = [value for value in values if value > -math.inf]
    if not numbers:
        return -math.inf
    highest = max(numbers)
    return highest + math.log(math.fsum(math.exp(value - highest) for value in numbers))


def _log_subtract(value: float, part: float) -> float:
    if part == -math.inf:
        return value
    rest = -math.expm1(part - value)
    return value + math.log(rest) if rest > 0.0 else -math.inf
