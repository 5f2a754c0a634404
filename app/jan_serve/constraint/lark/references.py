"""This module finds cycles and depths of references between rules, and keeps the chains in a printed grammar short.

llguidance recurses for each reference and each group. It compiles each rule once, at the first reference to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from jan_serve.constraint.lark.notation import LAZY, PARAMETER
from jan_serve.constraint.limits import MAX_REFERENCE_DEPTH
from jan_serve.errors import GrammarTooComplex
from jan_serve.text.lark_text import PIECES, depths, references

Uses: TypeAlias = Mapping[str, Sequence[tuple[str, int]]]
"""Per rule, the rules it refers to in textual order, each with the number of groups around the reference."""


def reference_depth(uses: Uses, root: str) -> int:
    """The maximum number of rules and groups open at the same time. A rule met before adds nothing."""
    return max(depth for _, depth in depths(uses.__getitem__, root))


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


NOTHING: Final = "/[^\\s\\S]/"
"""A terminal that no text has."""


def shallow_start(lines: list[str]) -> str:
    """The start rule, which is the first line, where needed with an alternative that no text takes: it refers to rules
    far down, so that no chain of references is long when llguidance follows it."""
    if sum(1 + line.count("(") for line in lines) <= MAX_REFERENCE_DEPTH:
        return lines[0]  # a path has each rule once, with the groups around one of its references
    headed = [line.split(": ", 1) for line in lines]
    bodies = {header.removesuffix(PARAMETER).removesuffix(LAZY): body for header, body in headed}
    arguments = {header.removesuffix(PARAMETER): "::0" for header, _ in headed if header.endswith(PARAMETER)}
    uses = {name: references(PIECES.findall(body), bodies) for name, body in bodies.items()}
    if reference_depth(uses, "start") <= MAX_REFERENCE_DEPTH:
        return lines[0]
    first = resting_places(uses, "start", MAX_REFERENCE_DEPTH // 2)
    uses["start"] = [*((name, 1) for name in first), *uses["start"]]
    if reference_depth(uses, "start") > MAX_REFERENCE_DEPTH:
        raise GrammarTooComplex(f"rules refer to one another deeper than {MAX_REFERENCE_DEPTH} levels")
    calls = [name + arguments.get(name, "") for name in first]
    return f"start: {NOTHING} ({' | '.join(calls)}) | {bodies['start']}"


def components(root: str, targets_of: Callable[[str], Iterable[str]]) -> list[list[str]]:
    """The strongly connected nodes below `root`, innermost first (Tarjan, iterative)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    groups: list[list[str]] = []
    work: list[tuple[str, list[str]]] = []

    def enter(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        on_stack.add(name)
        work.append((name, list(targets_of(name))))

    enter(root)
    while work:
        name, targets = work[-1]
        if targets:
            target = targets.pop()
            if target not in index:
                enter(target)
            elif target in on_stack:
                low[name] = min(low[name], index[target])
            continue
        work.pop()
        if work:
            low[work[-1][0]] = min(low[work[-1][0]], low[name])
        if low[name] == index[name]:
            cut = stack.index(name)
            groups.append(stack[cut:])
            on_stack.difference_update(stack[cut:])
            del stack[cut:]
    return groups
