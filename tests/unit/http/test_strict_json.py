from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.errors import InvalidJson
from jan_serve.http.strict_json import (
    MAX_CONTAINERS,
    MAX_DIGITS,
    MAX_EXTREME,
    MAX_MEMBERS,
    MAX_VALUES,
    PIECE_BYTES,
    JsonReader,
    decode_json,
)

DEPTH = 100


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"{",
        b"{'a': 1}",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": 1,}',
        b'{"a": 1} x',
        b'{"a": \xff\xfe}',
        b'{"a": "\xff\xfe"}',
        b'{"a": "\xed\xa0\x80"}',
        b'{"a": "\t"}',
        b'{"a": 01}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": "你好"}'.encode("gbk"),
        '{"a": 1}'.encode("utf-16"),
    ],
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidJson) as caught:
        decode_json(body, DEPTH)
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 20000 + b"]" * 20000,
        b'{"x":' + b"[" * 20000 + b"]" * 20000 + b"}",
        b'{"tools":[' + b'{"a":' * 20000,
        b"[" * (8 << 20),
        b'["' + b"[" * 500 + b'",' + b"[" * (DEPTH + 1),
    ],
    ids=["arrays", "unknown field", "objects", "8 MiB", "behind a text"],
)
def test_deep_nesting_is_refused_at_once(body: bytes) -> None:
    start = time.process_time()
    with pytest.raises(InvalidJson, match="nested more than 100 levels"):
        decode_json(body, DEPTH)
    assert time.process_time() - start < 1.0


def test_the_limit_is_the_depth_not_the_number_of_brackets() -> None:
    assert decode_json(b"[" * DEPTH + b"]" * DEPTH, DEPTH)
    assert decode_json(b"[" + b"[]," * 100_000 + b"1]", DEPTH)[-1] == 1
    assert decode_json(json.dumps({"a": "[" * 5000 + '\\"{'}).encode(), DEPTH) == {"a": "[" * 5000 + '\\"{'}


@pytest.mark.parametrize(
    "body", [b'"' * (1 << 20), b'"' + b'\\"' * (1 << 19), b'"a' * (1 << 19) + b"[" * 200]
)
def test_hostile_texts_take_linear_time(body: bytes) -> None:
    start = time.process_time()
    with contextlib.suppress(InvalidJson):
        decode_json(b"[" * 101 + body, DEPTH + 10_000)
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r"cut \ud83d", "cut \ufffd"), (r"a \ud83d b", "a \ufffd b"), (r"x \udc00 y", "x \ufffd y"),
        (r"\udc00\ud83d", "\ufffd\ufffd"), (r"\uD83D\n", "\ufffd\n"), (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\\ud83d \ud83d", "\\ud83d \ufffd"), (r"\ud83d\u0041", "\ufffdA"), (r"\ud83d\\ude00", "\ufffd\\ude00"),
        (r"\\\ud83d\ude00 \udfff", "\\\U0001f600 \ufffd"), (r"é\ud83d😀", "é\ufffd😀"),
    ],
)  # fmt: skip
def test_half_a_surrogate_pair_is_read_as_a_replacement_character(text: str, value: str) -> None:
    assert decode_json(f'{{"a": "{text}", "{text}": [1]}}'.encode(), DEPTH) == {"a": value, value: [1]}


def test_other_mistakes_beside_half_a_pair_keep_their_place() -> None:
    with pytest.raises(InvalidJson) as caught:
        decode_json(b'{"a": "\\ud83d",\n "b": nul}', DEPTH)
    assert "(byte " in caught.value.message


def test_the_place_of_what_is_not_utf_8_is_that_of_the_body() -> None:
    body = b'{\n"a": "\xc3\xa9", "b": "x\xff"}'
    with pytest.raises(InvalidJson, match=f"at byte {body.index(0xFF)}"):
        decode_json(body, DEPTH)


def test_nul_and_characters_beyond_the_plane_are_kept() -> None:
    assert decode_json(b'{"a": "\\u0000\\ud83d\\ude00"}', DEPTH) == {"a": "\0\U0001f600"}


def depth_of(value: Any) -> int:
    if isinstance(value, list):
        return 1 + max(map(depth_of, cast(list[Any], value)), default=0)
    if isinstance(value, dict):
        return 1 + max(map(depth_of, cast(dict[str, Any], value).values()), default=0)
    return 0


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner)
    ),
)


@given(JSON, st.integers(0, 6), st.booleans())
def test_agrees_with_the_standard_library(value: object, limit: int, ascii_only: bool) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    try:
        assert decode_json(body, limit) == value
    except InvalidJson as error:
        assert "nested" in str(error) and depth_of(value) > limit
    else:
        assert depth_of(value) <= limit
    assert decode_json(body, 500) == value


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"[" + b"[]," * (MAX_CONTAINERS + 1) + b"1]", f"more than {MAX_CONTAINERS} arrays and objects"),
        (b"[" + b'{"a":1},' * (MAX_CONTAINERS + 1) + b"1]", f"more than {MAX_CONTAINERS} arrays and objects"),
        (b"[" + b"1," * (MAX_VALUES + 1) + b"1]", f"more than {MAX_VALUES} values"),
        (b"[" + b'"",' * (MAX_VALUES + 1) + b"1]", f"more than {MAX_VALUES} values"),
        (b"{" + b'"":1,' * (MAX_MEMBERS + 1) + b'"":1}', f"more than {MAX_MEMBERS} members of objects"),
        (b"[" + b"1e300," * (MAX_EXTREME + 99) + b"1]", f"more than {MAX_EXTREME} numbers with exponents"),
        (b"[" + b"1.5E-300," * (MAX_EXTREME + 99) + b"1]", f"more than {MAX_EXTREME} numbers with exponents"),
        (b"[1," + b"7" * (MAX_DIGITS + 1) + b" " * PIECE_BYTES + b"]", f"more than {MAX_DIGITS} digits"),
    ],
    ids=["arrays", "objects", "numbers", "texts", "members", "exponents", "negative exponents", "digits"],
)
def test_more_parts_than_any_honest_request_are_refused(body: bytes, what: str) -> None:
    with pytest.raises(InvalidJson, match=what):
        decode_json(body, DEPTH)


def test_what_stands_in_texts_is_not_counted() -> None:
    text = "[,{" * MAX_VALUES
    assert decode_json(json.dumps({"prompt": text}).encode(), DEPTH) == {"prompt": text}
    assert len(decode_json(b"[" + b"1," * 200_000 + b"1]", DEPTH)) == 200_001


def test_the_garbage_collector_is_on_again_after_an_error() -> None:
    with pytest.raises(InvalidJson):
        decode_json(b"[1,", DEPTH)
    assert gc.isenabled()


# Made by the test that needs them: all of them have half a gigabyte.
MANY = 31 << 20
HOSTILE: dict[str, Callable[[], bytes]] = {
    "texts": lambda: b"[" + b'"",' * (MANY // 3) + b'""]',
    "members": lambda: b"{" + b'"":1,' * (MANY // 5) + b'"":1}',
    "arrays": lambda: b"[" + b"[]," * (MANY // 3) + b"[]]",
    "objects": lambda: b"[" + b"{}," * (MANY // 3) + b"{}]",
    "numbers": lambda: b"[" + b"1," * (MANY // 2) + b"1]",
    "exponents": lambda: b"[" + b"1e300," * (MANY // 6) + b"1]",
    "nesting": lambda: b"[" * MANY,
    "long numbers": lambda: b"[" + (b"1" * 4000 + b",") * (MANY // 4001) + b"1]",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_body_is_refused_in_small_steps_and_little_memory(name: str) -> None:
    """Other work of the event loop is done between the steps."""
    body = HOSTILE[name]()
    longest, turns = 0.0, 0

    async def others() -> None:
        nonlocal longest, turns
        while True:
            start = time.thread_time()
            await asyncio.sleep(0)
            longest, turns = max(longest, time.thread_time() - start), turns + 1

    async def judged() -> None:
        watching = asyncio.create_task(others())
        try:
            with pytest.raises(InvalidJson):
                await JsonReader(DEPTH).decode(body)
        finally:
            watching.cancel()

    start = time.thread_time()
    asyncio.run(judged())
    assert time.thread_time() - start < 2.0
    assert turns < MAX_VALUES * 12 / PIECE_BYTES, "the limit ends the check, not the body"
    assert longest < 0.1
    tracemalloc.start()
    try:
        with pytest.raises(InvalidJson):
            decode_json(body, DEPTH)
        assert tracemalloc.get_traced_memory()[1] < MANY / 10
    finally:
        tracemalloc.stop()


WITHIN: dict[str, Callable[[], bytes]] = {
    "texts": lambda: b"[" + b",".join(b'"%d"' % n for n in range(MAX_VALUES - 1)) + b"]",
    "members": lambda: b"{" + b",".join(b'"%0100d":1' % n for n in range(MAX_MEMBERS)) + b"}",
    "objects": lambda: b"[" + b'{"a":1},' * (MAX_CONTAINERS - 1) + b"1]",
    "numbers": lambda: b"[" + b"1234567890123456789012," * (MAX_VALUES - 2) + b"1]",
    "exponents": lambda: b"[" + b"1.0000000003e-300," * MAX_EXTREME + b"1]",
    "long numbers": lambda: b"[" + (b"1" * MAX_DIGITS + b",") * (MANY // (MAX_DIGITS + 1)) + b"1]",
    "one text": lambda: b'["' + "\U0001f600".encode() + b"a" * MANY + b'"]',
    "escapes": lambda: b'["' + b'\\"' * (MANY // 2) + b'"]',
}


@pytest.mark.parametrize("name", WITHIN)
def test_the_most_that_the_limits_admit_is_decoded_at_moderate_cost(name: str) -> None:
    """Decoding cannot be interrupted: the limits bound it."""
    body = WITHIN[name]()
    start = time.thread_time()
    value = decode_json(body, DEPTH)
    assert time.thread_time() - start < 10.0
    assert value


def test_several_large_bodies_are_judged_by_turns() -> None:
    """A small one waits for none of them."""
    large = b"[" + b"1," * (MAX_VALUES - 2) + b"1]"
    order: list[str] = []

    async def read(name: str, body: bytes) -> None:
        await reader.decode(body)
        order.append(name)

    async def run() -> None:
        nonlocal reader
        reader = JsonReader(DEPTH)
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(read(f"large {number}", large))
            await asyncio.sleep(0)
            group.create_task(read("four pieces", b"[" + b"1," * (2 * PIECE_BYTES - 8) + b"1]"))
            group.create_task(read("small", b"[1]"))

    reader = JsonReader(DEPTH)
    asyncio.run(run())
    assert order[:2] == ["small", "four pieces"]


@given(st.data())
def test_the_pieces_of_a_body_are_counted_like_the_whole(data: st.DataObject) -> None:
    """Texts, escapes and nesting at every place of a cut."""
    part = st.sampled_from(['"', "\\\\", '\\"', "[", "]", "{", ",", "a", "\u00e9"])
    text = "".join(data.draw(st.lists(part, max_size=12)))
    start = data.draw(st.integers(PIECE_BYTES - 40, PIECE_BYTES + 4))
    depth = data.draw(st.integers(1, 4))
    inner: Any = text + "x"
    for _ in range(depth):
        inner = [inner, "\\", text]
    body = json.dumps(["a" * start, inner, text]).encode()
    assert decode_json(body, depth + 1) == json.loads(body)
    with pytest.raises(InvalidJson, match="nested"):
        decode_json(body, depth)
