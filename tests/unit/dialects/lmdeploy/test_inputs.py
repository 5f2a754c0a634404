from __future__ import annotations

import pytest

from jan_serve.dialects.lmdeploy.inputs import pooling_inputs
from jan_serve.errors import InvalidRequest


def test_the_four_forms_of_a_pooling_input() -> None:
    assert pooling_inputs("a") == ["a"]
    assert pooling_inputs(["a", "b"]) == ["a", "b"]
    assert pooling_inputs([1, 2]) == [(1, 2)]
    assert pooling_inputs([[1, 2], [3]]) == [(1, 2), (3,)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "Input list cannot be empty."),
        ([1, "a"], "Input list contains an invalid type."),
        (["a", 1], "Input list contains an invalid type."),
        ([1.5], "Input list contains an invalid type."),
        ([True], "Input list contains an invalid type."),
        ([[1], 2], "Input list contains an invalid type."),
        ([["a"]], "Input list contains an invalid type."),
        ([None], "Input list contains an invalid type."),
        ([-1], "input: -1 is not a token id"),
        ([[1 << 31]], "input: 2147483648 is not a token id"),
        (["a"] * 2049, "input: has 2049 items, the limit is 2048"),
    ],
)
def test_other_pooling_inputs_are_refused(given: list[object], words: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        pooling_inputs(given)
    assert error.value.message == words
