"""Tests of many cases: a few of them, the same in each run, in `make test`; all of them in `make test-long`.

`make test-long` runs, of the tests outside of its folders, those with the mark `drawn` or of hypothesis.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import pytest

T = TypeVar("T")
Test = TypeVar("Test", bound=Callable[..., object])
_MOST: Final = 800


def some(cases: Iterable[T], count: int, seed: str = "", *, whole: bool = True) -> list[T]:
    """`count` of the cases, in their order; all of them if TEST_DRAWS is set. seed: another text draws others.

    whole: whether TEST_DRAWS counts.
    """
    found = [*cases]
    if (whole and "TEST_DRAWS" in os.environ) or len(found) <= count:
        return found
    return [found[at] for at in sorted(random.Random(f"{len(found)}{seed}").sample(range(len(found)), count))]


def drawn_grid(**axes: Sequence[Any]) -> Callable[[Test], Test]:
    """Parametrise and mark a test by points in which each value of each axis occurs.

    If TEST_DRAWS is set: by the whole grid, or `_MOST` points of it.
    """
    points = some(itertools.product(*axes.values()), _MOST, whole=False)
    if "TEST_DRAWS" not in os.environ:
        seeded = random.Random(",".join(axes))
        count = max(map(len, axes.values()))
        columns = [
            [value for _ in range(count) for value in seeded.sample(values, len(values))][:count]
            for values in axes.values()
        ]
        points = [*zip(*columns, strict=True)]
    grid = pytest.mark.parametrize(",".join(axes), points, ids=_name)
    return lambda test: pytest.mark.drawn(grid(test))


def _name(value: Any) -> str:
    """The same in each process of a run."""
    return value.__name__ if callable(value) else str(value)
