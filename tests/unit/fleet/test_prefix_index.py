"""Which nodes hold a prompt's beginning."""

from __future__ import annotations

from jan_serve.fleet.prefix_index import MAX_HOLDERS, PrefixIndex
from tests.unit.fleet.support import node


def test_the_index_finds_the_longest_prefix_and_each_nodes_own() -> None:
    index, first, second = PrefixIndex(), node(1), node(2)
    index.record((1, 2), first)
    index.record((1, 2, 3), second)
    assert index.longest((1, 2, 3, 4)) == [second]
    assert index.longest((1, 2, 9)) == [first, second]
    assert index.longest((7,)) == []
    assert index.depths((1, 2, 3, 4), [first, second, node(3)]) == {second: 3, first: 2}


def test_a_restart_makes_entries_void_and_forgetting_takes_one_prompt_back() -> None:
    index, first, second = PrefixIndex(), node(1), node(2)
    index.record((1,), first)
    index.record((1,), second)
    first.forget_cache()
    assert index.longest((1,)) == [second]
    index.forget((1,), second)
    assert index.longest((1,)) == []
    assert index.depths((1,), [first, second]) == {}
    index.record((1,), first)
    assert index.longest((1,)) == [first]


def test_the_index_is_bounded_in_entries_and_holders() -> None:
    index = PrefixIndex(max_entries=100)
    first = node()
    for key in range(1000):
        index.record((key, 5000), first)
    assert len(index) == 100
    assert index.longest((5000,)) == [first]
    assert index.longest((1,)) == []
    for number in range(100):
        index.record((5000,), node(number))
    assert len(index.longest((5000,))) == MAX_HOLDERS
