"""Green tokens match the definition by a shuffle."""

from __future__ import annotations

import numpy as np
import pytest

from jan_serve.text.watermark import green_tokens

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
