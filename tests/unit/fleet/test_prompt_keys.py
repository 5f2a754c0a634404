"""Keys of prompts: equal for equal beginnings, bounded in number."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jan_serve.fleet.prompt_keys import BLOCK_BYTES, MAX_BLOCKS, MAX_PARTS, prompt_keys

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
