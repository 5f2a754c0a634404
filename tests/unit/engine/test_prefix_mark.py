"""Prefixes under other adapters have nothing in common."""

from __future__ import annotations

import numpy as np

from jan_serve.engine.prefix_mark import PrefixMark
from jan_serve.engine.tokens import common_prefix

TOKENS = np.array([1, 2, 3, 151_935, 0, 2, 1], np.int32)
MARKS = [
    PrefixMark.of("a 1.0"),
    PrefixMark.of("a 0.5"),
    PrefixMark.of("b 1.0"),
    PrefixMark.of("a 1.0", "b 1.0"),
]


PINNED = [681946801, -193567636, -1069082073, -296399941, 1557461238, -193567636, 681946801]
"""Files of states are found by it after an update too."""


def test_equal_prefixes_stay_equal_under_one_mark() -> None:
    longer = np.append(TOKENS[:5], np.array([9, 9], np.int32))
    for mark in MARKS:
        marked = mark.apply(TOKENS)
        assert (marked.dtype, marked.shape) == (np.int32, TOKENS.shape)
        assert common_prefix(marked, mark.apply(TOKENS)) == len(TOKENS)
        assert common_prefix(marked, mark.apply(longer)) == 5
        assert marked[1] == marked[5]


def test_every_token_differs_under_two_marks() -> None:
    views = [TOKENS, *(mark.apply(TOKENS) for mark in MARKS)]
    for i, one in enumerate(views):
        assert all(not np.any(one == other) for other in views[i + 1 :])


def test_a_mark_is_a_permutation() -> None:
    every = np.arange(200_000, dtype=np.int32)
    assert len(np.unique(MARKS[0].apply(every))) == len(every)


def test_marks_are_the_same_in_every_process() -> None:
    assert PrefixMark.of("a 1.0") == MARKS[0] == PrefixMark(MARKS[0].factor, MARKS[0].offset)
    assert PrefixMark.of("digest 1.0").apply(TOKENS).tolist() == PINNED
