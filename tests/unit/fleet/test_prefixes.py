"""Keys of prefixes, and which node has which."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jan_serve.fleet.prefixes import (
    BLOCK_BYTES,
    MAX_BLOCKS,
    MAX_HOLDERS,
    MAX_PARTS,
    FleetPrefixIndex,
    prompt_keys,
)
from tests.unit.fleet.support import node

SALT = b"salt"


@given(st.lists(st.binary(max_size=1500), max_size=6), st.lists(st.binary(max_size=1500), max_size=3))
def test_a_longer_prompt_keeps_the_keys_of_its_beginning(parts: list[bytes], more: list[bytes]) -> None:
    short, long = prompt_keys(SALT, "m", parts), prompt_keys(SALT, "m", [*parts, *more])
    assert long.keys[: len(short.keys)] == short.keys
    assert long.ends[: len(short.ends)] == short.ends
    assert short.n_bytes == sum(map(len, parts))


@given(st.binary(min_size=1, max_size=5000), st.data())
def test_where_parts_begin_does_not_matter(text: bytes, data: st.DataObject) -> None:
    split = data.draw(st.integers(0, len(text)))
    assert prompt_keys(SALT, "m", [text]) == prompt_keys(SALT, "m", [text[:split], text[split:]])


def test_keys_differ_by_text_model_and_process() -> None:
    text = b"x" * BLOCK_BYTES
    keys = {prompt_keys(salt, model, [text]).keys for salt in (b"a", b"b") for model in ("m", "n")}
    assert len(keys) == 4
    assert prompt_keys(SALT, "m", [text]).keys != prompt_keys(SALT, "m", [b"y" + text[1:]]).keys


def test_keys_are_bounded_and_long_conversations_still_grow() -> None:
    parts = [b"z" * 40_000] + [b"turn"] * 1000
    keys = prompt_keys(SALT, "m", parts)
    assert MAX_BLOCKS < len(keys.keys) <= MAX_BLOCKS + MAX_PARTS
    assert len(prompt_keys(SALT, "m", parts[:3]).keys) == MAX_BLOCKS + 3
    assert list(keys.ends) == sorted(set(keys.ends))


def test_the_index_finds_the_longest_prefix_and_each_nodes_own() -> None:
    index, first, second = FleetPrefixIndex(), node(1), node(2)
    index.record((1, 2), first)
    index.record((1, 2, 3), second)
    assert index.longest((1, 2, 3, 4)) == [second]
    assert index.longest((1, 2, 9)) == [first, second]
    assert index.longest((7,)) == []
    assert index.depths((1, 2, 3, 4), [first, second, node(3)]) == {second: 3, first: 2}


def test_a_restart_makes_entries_void_and_forgetting_takes_one_prompt_back() -> None:
    index, first, second = FleetPrefixIndex(), node(1), node(2)
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
    index = FleetPrefixIndex(max_entries=100)
    first = node()
    for key in range(1000):
        index.record((key, 5000), first)
    assert len(index) == 100
    assert index.longest((5000,)) == [first]
    assert index.longest((1,)) == []
    for number in range(100):
        index.record((5000,), node(number))
    assert len(index.longest((5000,))) == MAX_HOLDERS
