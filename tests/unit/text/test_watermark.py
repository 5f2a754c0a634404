"""Green tokens match the definition by a shuffle, and detection finds them in a text."""

from __future__ import annotations

import random

import numpy as np
import pytest

from jan_serve.text.watermark import detect, green_tokens

HASH_KEY = 15485863


def shuffled(size: int, seed: int) -> list[int]:
    """The permutation by its definition: one swap after the other."""
    draws = np.random.RandomState(seed & 0xFFFFFFFF)
    values = list(range(size))
    for index in range(size - 1):
        other = index + int(draws.randint(0, 1 << 32, dtype=np.uint32)) % (size - index)
        values[index], values[other] = values[other], values[index]
    return values


@pytest.mark.parametrize(
    ("seed", "values"), [(0, [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]), (42, [2, 6, 1, 8, 4, 5, 0, 9, 3, 7])]
)
def test_the_definition_gives_the_published_permutations(seed: int, values: list[int]) -> None:
    assert shuffled(10, seed) == values


@pytest.mark.parametrize("size", [2, 3, 10, 257, 3000])
@pytest.mark.parametrize("gamma", [0.5, 0.25, 0.9])
def test_green_tokens_are_the_front_of_the_permutation(size: int, gamma: float) -> None:
    for previous in (0, 1, 42, size - 1, 277_414):  # the last one is beyond 32 bits when it is hashed
        front = shuffled(size, HASH_KEY * previous)[: int(size * gamma)]
        assert set(np.flatnonzero(green_tokens(size, previous, gamma)).tolist()) == set(front)


def test_a_token_is_green_by_the_published_vector() -> None:
    assert np.flatnonzero(green_tokens(10, 0)).tolist() == [1, 3, 4, 5, 7]


def marked(size: int, length: int, rng: random.Random) -> list[int]:
    """Tokens that are each green after the previous one."""
    tokens = [rng.randrange(size)]
    while len(tokens) < length:
        tokens.append(rng.choice(np.flatnonzero(green_tokens(size, tokens[-1])).tolist()))
    return tokens


def test_detection_separates_watermarked_text() -> None:
    rng = random.Random(7)
    found = detect(marked(1000, 101, rng), 1000)
    assert (found.scored, found.green, found.z) == (100, 100, 10.0)
    assert found.p < 1e-20
    other = detect([rng.randrange(1000) for _ in range(101)], 1000)
    assert abs(other.z) < 4
    assert 1e-4 < other.p < 1 - 1e-4


def test_a_text_that_repeats_itself_can_be_counted_once() -> None:
    tokens = [1, 2] * 50
    assert detect(tokens, 100).scored == 99
    assert detect(tokens, 100, unique=True).scored == 2


@pytest.mark.parametrize(("tokens", "gamma"), [([], 0.5), ([1], 0.5), ([1, 2], 0.0), ([1, 2], 1.0)])
def test_invalid_input_is_rejected(tokens: list[int], gamma: float) -> None:
    with pytest.raises(ValueError, match=r"cannot be scored|is not between"):
        detect(tokens, 10, gamma=gamma)
