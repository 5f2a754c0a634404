"""The words that are used up, as sorted keys, and whether an automaton has one that is not."""

from __future__ import annotations

from bisect import bisect_left

from jan_serve.core.uniqueness import Automaton
from jan_serve.text.uniqueness.spellings import ALL


def is_used(used: tuple[str, ...], key: str) -> bool:
    at = bisect_left(used, key)
    return at < len(used) and used[at] == key


def beginning_with(used: tuple[str, ...], prefix: str) -> tuple[str, ...]:
    first = end = bisect_left(used, prefix)
    while end < len(used) and used[end].startswith(prefix):
        end += 1
    return used[first:end]


def is_left(
    automaton: Automaton, text: str, chars: tuple[tuple[int, int], ...], prefix: str, used: tuple[str, ...]
) -> bool:
    """Whether some word that begins with `text`, and goes on with one of `chars`, is not used; or none is a word."""
    at: int | None = 0
    for character in text:
        at = automaton.step(at, character)
        if at is None:
            return True  # the grammar's fault, which is not allowed here either
    if chars is not ALL and not any(
        low <= last and first <= high for first, last, _ in automaton.edges[at] for low, high in chars
    ):
        return True
    return _is_alive(automaton, at, chars, prefix, beginning_with(used, prefix))


def _is_alive(
    automaton: Automaton,
    at: int,
    chars: tuple[tuple[int, int], ...],
    prefix: str,
    used: tuple[str, ...],
) -> bool:
    """Whether some word from state `at` on, that goes on with one of `chars`, is not used.

    prefix: the key so far. used: the keys that begin with it.
    """
    todo = [(at, chars, prefix, used)]
    while todo:
        at, chars, prefix, used = todo.pop()
        if not used or (chars is ALL and at in automaton.accepting and used[0] != prefix):
            return True
        follow: dict[str, int] = {}
        for key in used:
            if len(key) > len(prefix):
                follow[key[len(prefix)]] = 0
        for first, last, target in automaton.edges[at]:
            inside = [c for c in follow if first <= ord(c) <= last]
            for low, high in chars:
                low, high = max(low, first), min(high, last)
                here = [c for c in inside if low <= ord(c) <= high]
                if high - low + 1 > len(here):
                    return True
                todo += [(target, ALL, prefix + c, beginning_with(used, prefix + c)) for c in here]
    return False
