"""Tests of many sizes and types at once: a few points of the grid in `make test`, all of them in `make test-long`."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Sequence
from typing import Any

import pytest


def drawn_grid(**axes: Sequence[Any]) -> pytest.MarkDecorator:
    """Parametrise a test by points in which each value of each axis occurs; by the whole grid if TEST_DRAWS is set."""
    points = [*itertools.product(*axes.values())]
    if "TEST_DRAWS" not in os.environ:
        seeded = random.Random(",".join(axes))
        count = max(map(len, axes.values()))
        columns = [
            [value for _ in range(count) for value in seeded.sample(values, len(values))][:count]
            for values in axes.values()
        ]
        points = [*zip(*columns, strict=True)]
    return pytest.mark.parametrize(",".join(axes), points, ids=str)
