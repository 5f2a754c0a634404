"""Keeps chains of references in a printed grammar short: llguidance recurses for each reference and each group."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from jan_serve.constraint.lark_layout import PARAMETER
from jan_serve.constraint.lark_quoting import LAZY
from jan_serve.constraint.limits import MAX_REFERENCE_DEPTH
from jan_serve.constraint.reference_depth import reference_depth, resting_places
from jan_serve.errors import GrammarTooComplex

_PIECES: Final = re.compile(r'"(?:[^"\\]|\\.)*"|/(?:[^/\\]|\\.)*/|[()]|[A-Za-z_]\w*')
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
    uses = {name: _references_in(body, bodies) for name, body in bodies.items()}
    if reference_depth(uses, "start") <= MAX_REFERENCE_DEPTH:
        return lines[0]
    first = resting_places(uses, "start", MAX_REFERENCE_DEPTH // 2)
    uses["start"] = [*((name, 1) for name in first), *uses["start"]]
    if reference_depth(uses, "start") > MAX_REFERENCE_DEPTH:
        raise GrammarTooComplex(f"rules refer to one another deeper than {MAX_REFERENCE_DEPTH} levels")
    calls = [name + arguments.get(name, "") for name in first]
    return f"start: {NOTHING} ({' | '.join(calls)}) | {bodies['start']}"


def _references_in(body: str, known: Container[str]) -> list[tuple[str, int]]:
    """The rules and terminals that a printed body refers to, each with the groups around it."""
    found: list[tuple[str, int]] = []
    groups = 0
    for piece in _PIECES.findall(body):
        if piece in "()":
            groups += 1 if piece == "(" else -1
        elif piece in known:
            found.append((piece, groups))
    return found
