"""Strongly connected components of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable


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
