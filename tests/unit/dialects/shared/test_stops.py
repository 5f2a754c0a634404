from __future__ import annotations

import pytest

from jan_serve.dialects.shared.stops import MAX_STOP_CHARS, stop_texts
from jan_serve.errors import InvalidRequest


@pytest.mark.parametrize(
    ("stop", "more", "expected"),
    [
        (None, (), ()),
        ("a", (), ("a",)),
        ("ab", (), ("ab",)),
        (["a", "b", "a"], (), ("a", "b")),
        (["a"], ["b", "a"], ("a", "b")),
        (None, ["b"], ("b",)),
        ([], (), ()),
        ("x" * MAX_STOP_CHARS, (), ("x" * MAX_STOP_CHARS,)),
    ],
)
def test_stops_in_their_order_without_duplicates(
    stop: str | list[str] | None, more: list[str], expected: tuple[str, ...]
) -> None:
    assert stop_texts(stop, more) == expected


@pytest.mark.parametrize(
    ("stop", "words"),
    [("", "empty text"), (["a", ""], "empty text"), ("x" * (MAX_STOP_CHARS + 1), "limit is 1024")],
)
def test_stops_that_are_refused_name_the_field(stop: str | list[str], words: str) -> None:
    with pytest.raises(InvalidRequest, match=f"stop_words: .*{words}") as caught:
        stop_texts(stop, field="stop_words")
    assert caught.value.param == "stop_words"
