"""Strict JSON types, ranges and caps of requests."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import ValidationError

from jan_serve.dialects.shared.wire_types import (
    MAX_INT,
    AtMost,
    Between,
    Inputs,
    Int,
    Ints,
    Strings,
    TextsOrTokens,
    WireModel,
)
from jan_serve.errors import InvalidRequest


class Body(WireModel):
    count: Annotated[Int, Between(1, 10)] = 1
    share: Annotated[float, Between(-0.5, 0.5)] = 0.0
    seconds: Annotated[float, Between(0)] = 0.0
    names: Annotated[Strings | None, AtMost(2, "names")] = None
    ids: Ints | None = None
    flag: bool = False
    prompt: Annotated[Inputs | None, TextsOrTokens("prompt", texts=2, tokens=3)] = None


def errors(**values: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Body.model_validate(values)
    return [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in caught.value.errors()]


def test_members_that_nobody_knows_are_ignored() -> None:
    assert Body.model_validate({"count": 2, "other": 1}).model_extra is None


@pytest.mark.parametrize(("value", "expected"), [(3, 3), (3.0, 3), (1e1, 10)])
def test_a_whole_number_is_an_integer(value: float, expected: int) -> None:
    count = Body.model_validate({"count": value}).count
    assert (count, type(count)) == (expected, int)


@pytest.mark.parametrize(
    "values",
    [
        {"count": "3"},
        {"count": 1.5},
        {"count": True},
        {"flag": 1},
        {"flag": "true"},
        {"share": "0"},
        {"names": "a"},
    ],
)
def test_no_type_becomes_another(values: dict[str, Any]) -> None:
    assert len(errors(**values)) == 1


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"count": 0}, "count: must be from 1 to 10"),
        ({"count": 11}, "count: must be from 1 to 10"),
        ({"share": 0.6}, "share: must be from -0.5 to 0.5"),
        ({"seconds": -1}, "seconds: must be 0 or more"),
    ],
)
def test_a_range_names_both_ends(values: dict[str, Any], text: str) -> None:
    assert errors(**values) == [text]


def test_ranges_are_in_the_document() -> None:
    fields = Body.model_json_schema()["properties"]
    assert (fields["count"]["minimum"], fields["count"]["maximum"]) == (1, 10)
    assert fields["seconds"]["minimum"] == 0 and "maximum" not in fields["seconds"]


def test_a_list_reports_its_first_wrong_item_alone() -> None:
    assert len(errors(ids=[1, "a", "b", "c"])) == 1


def test_a_cap_comes_before_any_other_check() -> None:
    with pytest.raises(InvalidRequest, match="names: has 3 items, the limit is 2") as caught:
        Body.model_validate({"names": [1, 2, 3]})
    assert caught.value.param == "names"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a", ["a"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2.0], [(1, 2)]),
        ([[1], [2, 3]], [(1,), (2, 3)]),
    ],
)
def test_texts_or_tokens(value: Any, expected: Any) -> None:
    assert Body.model_validate({"prompt": value}).prompt == expected


@pytest.mark.parametrize(
    "value", [1, None, {}, ["a", 1], [1, "a"], [[1], 2], [["a"]], [1.5], [True], [[None]]]
)
def test_what_is_neither_texts_nor_tokens_is_one_error(value: Any) -> None:
    (error,) = errors(prompt=value)
    assert error.startswith("prompt: must be a text, a list of texts")


REFUSED: list[tuple[Any, str]] = [
    ([], "an empty list"),
    ([[]], "an empty list"),
    (["a"] * 3, "has 3 items, the limit is 2"),
    ([1] * 4, "has 4 items, the limit is 3"),
    ([[1]] * 3, "has 3 items, the limit is 2"),
    ([[1] * 4], "has 4 items, the limit is 3"),
    ([-1], "-1 is not a token id"),
    ([MAX_INT + 1], "is not a token id"),
]


@pytest.mark.parametrize(("value", "words"), REFUSED)
def test_lists_that_are_empty_or_too_long(value: Any, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        Body.model_validate({"prompt": value})
