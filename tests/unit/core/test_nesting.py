from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.nesting import is_deeper


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("levels", [0, 1, 2, 50])
def test_so_many_levels_are_allowed_and_one_more_is_not(levels: int) -> None:
    assert not is_deeper(nested(levels), levels)
    assert is_deeper(nested(levels + 1), levels)


def test_the_deepest_branch_counts() -> None:
    assert is_deeper([1, {"a": 2, "b": [[]]}, []], 3)
    assert not is_deeper([1, {"a": 2, "b": [[]]}, []], 4)


def test_values_of_any_depth_need_no_stack() -> None:
    assert is_deeper(nested(100_000), 50)
