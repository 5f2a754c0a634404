"""Grids of which `make test` draws a few points."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.drawn_grid import drawn_grid, some

AXES = {"rows": [1, 7, 8, 64], "kind": ["a", "b"], "threads": [1, 2, 40]}


def points_of_the_grid() -> list[tuple[int, str, int]]:
    def one(rows: int, kind: str, threads: int) -> None: ...

    marked: Any = drawn_grid(**AXES)(one)
    grid, mark = marked.pytestmark
    assert mark.name == "drawn"
    return grid.args[1]


def test_each_value_occurs_in_the_points_that_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_DRAWS", raising=False)
    points = points_of_the_grid()
    assert len(points) == 4
    assert [set(column) for column in zip(*points, strict=True)] == [set(values) for values in AXES.values()]
    assert points_of_the_grid() == points


def test_the_whole_grid_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_DRAWS", "1")
    assert len(set(points_of_the_grid())) == 24
    assert some(range(100), 10) == [*range(100)]


def test_some_of_the_cases_are_the_same_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_DRAWS", raising=False)
    assert some(range(100), 10) == some(range(100), 10)
    assert len(set(some(range(100), 10))) == 10
    assert some("abc", 3) == ["a", "b", "c"]
    assert some(range(100), 10) != some(range(100), 10, "another seed")
