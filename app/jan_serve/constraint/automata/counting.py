"""How many words an automaton has."""

from __future__ import annotations

from typing import Final

from jan_serve.constraint import charset
from jan_serve.constraint.automata.dfa import Dfa

SURROGATES: Final = ((0xD800, 0xDFFF),)
"""Code points that no text has."""


def is_endless(dfa: Dfa) -> bool:
    """Whether every beginning of a word begins endlessly many; so it is of no words at all."""
    live = dfa.live_states()
    # Where each state leads on to another one, each leads to a cycle.
    return all(not live.isdisjoint(dfa.table[state]) for state in live)


def endless_states(dfa: Dfa) -> frozenset[int]:
    """The states from which endlessly many words go on."""
    live = dfa.live_states()
    left = {state: live.intersection(dfa.table[state]) for state in live}
    before: dict[int, list[int]] = {state: [] for state in live}
    for state, targets in left.items():
        for target in targets:
            before[target].append(state)
    counts = {state: len(targets) for state, targets in left.items()}
    todo = [state for state, count in counts.items() if not count]
    for state in todo:
        del counts[state]
        for source in before[state]:
            counts[source] -= 1
            if not counts[source]:
                todo.append(source)
    return frozenset(counts)


def count_words(dfa: Dfa, most: int) -> int:
    """The number of words of a finite language; most + 1 for more."""
    edges = dfa.live_edges()
    counts: dict[int, int] = {}
    stack = [0] if 0 in edges else []
    while stack:
        state = stack[-1]
        waiting = [target for target in edges[state] if target not in counts]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        found = (state in dfa.accepting) + sum(
            charset.size(charset.subtract(chars, SURROGATES)) * counts[target]
            for target, chars in edges[state].items()
        )
        counts[state] = min(found, most + 1)
    return counts.get(0, 0)


def all_words(dfa: Dfa) -> list[str]:
    """All words of a finite language of few."""
    edges = dfa.live_edges()
    found: list[str] = []
    todo = [(0, "")] if 0 in edges else []
    while todo:
        state, word = todo.pop()
        if state in dfa.accepting:
            found.append(word)
        todo += [
            (target, word + chr(code))
            for target, chars in edges[state].items()
            for low, high in chars
            for code in range(low, high + 1)
        ]
    return found
