from __future__ import annotations

import contextlib
import gc
import json
import time
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.api.http.strict_json import MAX_CONTAINERS, MAX_VALUES, decode_json
from jan_serve.errors import InvalidJson

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
    assert caught.value.place is not None and caught.value.place[0] == 2


def test_the_place_of_what_is_not_utf_8_is_that_of_the_body() -> None:
    body = b'{\n"a": "\xc3\xa9", "b": "x\xff"}'
    with pytest.raises(InvalidJson, match=f"at byte {body.index(0xFF)}") as caught:
        decode_json(body, DEPTH)
    assert caught.value.place == (2, body.index(b"\xff") - 1)


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
    ],
    ids=["arrays", "objects", "numbers"],
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
