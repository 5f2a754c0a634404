"""Depth of references, and the rules that cut it when they are met first."""

from __future__ import annotations

import pytest

from jan_serve.constraint.lark_references import Uses, reference_depth, resting_places


def line(length: int) -> dict[str, list[tuple[str, int]]]:
    uses = {str(i): [(str(i + 1), 0)] for i in range(length)}
    return {**uses, str(length): []}


CASES: dict[str, tuple[Uses, int]] = {
    "alone": ({"0": []}, 1),
    "itself": ({"0": [("0", 0)]}, 1),
    "groups count": ({"0": [("1", 3)], "1": []}, 5),
    "met before": ({"0": [("2", 0), ("1", 0)], "1": [("2", 0)], "2": [("3", 0)], "3": []}, 3),
    "met later": ({"0": [("1", 0), ("2", 0)], "1": [("2", 0)], "2": [("3", 0)], "3": []}, 4),
    "cycle": ({**line(9), "9": [("0", 0)]}, 10),
    "no recursion of ours": (line(50_000), 50_001),
}


@pytest.mark.parametrize("name", CASES)
def test_depth(name: str) -> None:
    uses, depth = CASES[name]
    assert reference_depth(uses, "0") == depth


@pytest.mark.parametrize("back", [[], [("0", 0)]])
def test_resting_places_bound_the_depth(back: list[tuple[str, int]]) -> None:
    uses = {**line(1000), "1000": back}
    first = resting_places(uses, "0", 100)
    assert len(first) == 10
    uses["0"] = [*((name, 1) for name in first), *uses["0"]]
    assert reference_depth(uses, "0") <= 104
