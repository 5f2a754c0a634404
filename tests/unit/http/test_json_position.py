"""Every value of a body is found where it stands."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.http.json_position import Span, line_and_column, span_of

VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('ab"\\{}[],: \né'),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('a"\\}é', max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path]
    inner: Any = ()
    if isinstance(value, list | dict):
        inner = cast(Any, value).items() if isinstance(value, dict) else enumerate(cast(Any, value))
    for step, each in inner:
        found += paths(each, (*path, step))
    return found


@settings(deadline=None)
@given(value=VALUES, indent=st.sampled_from([None, 1]), escaped=st.booleans())
def test_the_bytes_at_a_path_are_its_value(value: Any, indent: int | None, escaped: bool) -> None:
    body = json.dumps(value, indent=indent, ensure_ascii=escaped).encode()
    for path in paths(value):
        expected = value
        for step in path:
            expected = expected[step]
        span = span_of(body, path)
        assert span is not None
        text = body[span.start : span.end]
        assert text == text.strip()
        assert msgspec.json.decode(text) == expected


def test_of_a_name_that_is_repeated_the_last_counts() -> None:
    assert span_of(b'{"a": 1, "\\u0061": [2]}', ["a"]) == Span(19, 22)


@pytest.mark.parametrize("body", [b"[" + b"[]," * 300_000 + b"1]", b"{" + b'"a":1,' * 300_000 + b'"b":1}'])
def test_what_lies_far_behind_is_not_looked_for(body: bytes) -> None:
    assert span_of(body, ["b"] if body.startswith(b"{") else [300_000]) is None


@pytest.mark.parametrize(
    ("offset", "place"), [(0, (1, 0)), (2, (1, 2)), (3, (2, 0)), (5, (2, 2)), (9, (3, 2))]
)
def test_lines_and_columns(offset: int, place: tuple[int, int]) -> None:
    assert line_and_column("{}\né{\n 1".encode(), offset) == place
