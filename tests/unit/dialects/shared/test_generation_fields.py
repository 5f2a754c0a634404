from __future__ import annotations

import pytest
from pydantic import BaseModel

from jan_serve.dialects.shared.generation_fields import MAX_STOP_CHARS, explicit_fields, stop_texts, ttl_s
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


class Body(BaseModel):
    temperature: float | None = 0.5
    top_p: float | None = None
    n_predict: int | None = None


def test_defaults_and_nulls_are_not_explicit() -> None:
    assert explicit_fields(Body()) == frozenset()
    assert explicit_fields(Body(temperature=None)) == frozenset()


def test_a_value_equal_to_the_default_is_explicit() -> None:
    assert explicit_fields(Body(temperature=0.5)) == {"temperature"}


def test_fields_have_the_names_of_the_parameters() -> None:
    body = Body(top_p=0.0, n_predict=3)
    assert explicit_fields(body, n_predict="max_tokens") == {"top_p", "max_tokens"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (0, 0.0), (300, 300.0), (1.5, 1.5), (-1, -1.0), (-0.5, -1.0),
        ("5m", 300.0), ("1h30m", 5400.0), ("90s", 90.0), ("500ms", 0.5), ("1.5h", 5400.0), (".5s", 0.5),
        ("0", 0.0), ("0s", 0.0), ("-1", -1.0), ("-1m", -1.0), ("300", 300.0), ("+5m", 300.0), (" 5m ", 300.0),
    ],
)  # fmt: skip
def test_durations(value: float | str | None, expected: float | None) -> None:
    assert ttl_s(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "", "m", "5 m", "5d", "five", "1h-30m", "5mm", "nan", "9" * 65, float("nan"), float("inf"),
        pytest.param(10**309, id="no float is that large"), pytest.param(-(10**309), id="nor that small"),
    ],
)  # fmt: skip
def test_what_is_no_duration(value: int | float | str) -> None:
    with pytest.raises(InvalidRequest, match="keep_alive: must be a number of seconds"):
        ttl_s(value)
