"""Sums over the tokenisations of options, compared with all paths written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.engine.scoring.option_tree import OptionTree, Path, SpelledOption
from tests.unit.engine.scoring.tokenisations import PIECES, VOCABULARY, canonical, paths_of

# Tokens of a small vocabulary; 7 is of no option.


def logits_after(path: Path, seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    random = np.random.default_rng([seed, *(token + 1 for token in path)])
    return random.normal(0.0, 2.0, len(VOCABULARY)).astype(np.float32)


def probability(path: Path, seed: int = 0) -> float:
    value = 1.0
    for end, token in enumerate(path):
        logits = logits_after(path[:end], seed).astype(np.float64)
        value *= float(np.exp(logits[token]) / np.exp(logits).sum())
    return value


def weighed(options: list[bytes], seed: int = 0, *, canonical_only: bool = False) -> tuple[list[float], bool]:
    spelled = [SpelledOption((text,), canonical(text)) for text in options]
    tree = OptionTree(spelled, PIECES, canonical_only=canonical_only)
    while paths := tree.next_paths(3):
        for path in paths:
            for beginning in tree.missing(path):
                tree.add_logits(beginning, logits_after(beginning, seed))
    masses, is_exact = tree.result()
    return [math.exp(mass) for mass in masses], is_exact


def wanted(options: list[bytes], seed: int, paths: dict[bytes, list[Path]]) -> list[float]:
    """Probability of each option: that of its paths, without those of a longer option that pass its end."""
    found: list[float] = []
    for option in options:
        total = 0.0
        for path in paths[option]:
            total += probability(path, seed)
        for other in options:
            if other != option and other.startswith(option):
                for path in paths[other]:
                    ends = list(itertools.accumulate(len(VOCABULARY[token]) for token in path))
                    between = {len(text) for text in options if other.startswith(text) and text != other}
                    passed = [end for end in ends if end in between]
                    if passed and passed[-1] == len(option):
                        total -= probability(path, seed)
        found.append(total)
    return found


@settings(max_examples=25, deadline=None)
@given(
    options=st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=5, unique=True),
    seed=st.integers(0, 1000),
    canonical_only=st.booleans(),
)
def test_masses_are_those_of_the_paths(options: list[str], seed: int, canonical_only: bool) -> None:
    texts = [option.encode() for option in options]
    found, is_exact = weighed(texts, seed, canonical_only=canonical_only)
    assert is_exact is not canonical_only
    paths = {text: [canonical(text)] if canonical_only else paths_of(text) for text in texts}
    expected = wanted(texts, seed, paths)
    assert found == pytest.approx(expected, abs=max(expected) * 1e-4)
    assert all(value >= 0.0 for value in found) and sum(found) <= 1.0 + 1e-9


def test_options_that_the_tokenizer_merges_share_no_mass() -> None:
    """`ab` is one token and also `a`, `b`: the second way belongs to `ab`, not to `a`."""
    found, _ = weighed([b"a", b"ab"])
    assert found[0] == pytest.approx(probability((0,)) - probability((0, 1)), rel=1e-4)
    assert found[1] == pytest.approx(probability((0, 1)) + probability((2,)), rel=1e-4)
