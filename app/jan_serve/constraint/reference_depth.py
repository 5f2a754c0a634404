"""Recursion depth of an executor that compiles each rule once, at the first reference to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Uses: TypeAlias = Mapping[str, Sequence[tuple[str, int]]]
"""Per rule, the rules it refers to in textual order, each with the number of groups around the reference."""


def reference_depth(uses: Uses, root: str) -> int:
    """The maximum number of rules and groups open at the same time. A rule met before adds nothing."""
    deepest = 0
    path = [(1, iter(uses[root]))]
    seen = {root}
    while path:
        depth, rest = path[-1]
        if depth > deepest:
            deepest = depth
        for name, groups in rest:
            if name not in seen:
                seen.add(name)
                path.append((depth + groups + 1, iter(uses[name])))
                break
        else:
            path.pop()
    return deepest


def resting_places(uses: Uses, root: str, depth: int) -> list[str]:
    """Rules for the root to refer to first, in this order, so that about `depth` rules and groups are open at once.

    A cycle longer than that, and not through the root, is still followed to its end.
    """
    found: list[str] = []
    heights = {root: 1}
    path = [(root, 0, iter(uses[root]))]
    while path:
        name, groups, rest = path[-1]
        target = next((use for use in rest if use[0] not in heights), None)
        if target is not None:
            heights[target[0]] = 1
            path.append((*target, iter(uses[target[0]])))
            continue
        path.pop()
        if path:
            height = heights[name] + groups
            if height >= depth:
                found.append(name)
                height = 0
            above = path[-1][0]
            heights[above] = max(heights[above], height + 1)
    return found
