"""The index of saved sequences finds what a search through all would find."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.engine.cache.prefix_index import BLOCK, PrefixIndex, Tokenised
from jan_serve.engine.tokens import common_prefix


def item(*runs: tuple[int, int]) -> Tokenised:
    """Runs of one token each: (token, count)."""
    return Tokenised(np.concatenate([np.full(count, token, np.int32) for token, count in runs]))


LENGTHS = st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
ITEMS = st.lists(st.tuples(st.integers(0, 1), LENGTHS), min_size=1, max_size=4).map(lambda runs: item(*runs))


@given(st.lists(ITEMS, max_size=8), st.integers(0, 7), ITEMS)
def test_it_finds_what_a_search_through_all_finds(
    items: list[Tokenised], gone: int, asked: Tokenised
) -> None:
    index: PrefixIndex[Tokenised] = PrefixIndex()
    for each in items:
        index.add(each)
    if gone < len(items):
        assert index.remove(items.pop(gone))
    assert list(index) == items
    shared = {each: common_prefix(each.tokens, asked.tokens) for each in items}
    best = max(shared.values(), default=0)
    found = index.longest(asked.tokens)
    if best < BLOCK:
        assert found is None
    else:
        assert found is not None
        assert shared[found[0]] == found[1] == best
    whole = [each for each in items if shared[each] == len(each.tokens)]
    assert set(index.beginnings(asked.tokens)) == set(whole)
    lengths = [len(each.tokens) for each in index.beginnings(asked.tokens)]
    assert lengths == sorted(lengths, reverse=True)
    assert index.has_beginning(asked.tokens) == any(n == len(asked.tokens) for n in shared.values())


def test_among_many_with_one_beginning_less_than_a_block_is_lost() -> None:
    index: PrefixIndex[Tokenised] = PrefixIndex()
    index.add(item((0, BLOCK), (1, BLOCK - 1), (2, 1)))
    for token in range(3, 50):
        index.add(item((0, BLOCK), (token, 5)))
    found = index.longest(item((0, BLOCK), (1, 50)).tokens)
    assert found is not None
    assert BLOCK <= found[1] < 2 * BLOCK
