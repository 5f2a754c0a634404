"""What `jan-serve certify` found that a model can do here, and for which programs that is enough (pure)."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec


class Mark(msgspec.Struct, frozen=True):
    """One task. right, of: how many of its cases were answered as they must be. note: a measured value, in words."""

    task: str
    right: int
    of: int
    note: str = ""

    @property
    def share(self) -> float:
        return self.right / self.of if self.of else 0.0


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """One run. at: seconds since 1970. n_ctx: tokens. cold_s, warm_s: until the first token of an agent's prompt that
    has `prompt` tokens, not cached and cached; None if it does not fit."""

    model: str
    version: str
    at: float
    n_ctx: int
    marks: tuple[Mark, ...]
    prompt: int = 0
    cold_s: float | None = None
    warm_s: float | None = None
    format: int = 1

    def mark(self, task: str) -> Mark | None:
        return next((mark for mark in self.marks if mark.task == task), None)


class Needs(NamedTuple):
    """What a program asks of a model. program: its name in `connect`, or a use. n_ctx: its prompt with tools, and room
    for a session. tasks: that must hold."""

    program: str
    n_ctx: int
    tasks: tuple[str, ...]


PROGRAMS: Final = (
    Needs("claude", 32_768, ("10 tools", "50 tools", "turns", "needle")),
    Needs("codex", 32_768, ("10 tools", "turns", "needle")),
    Needs("opencode", 32_768, ("10 tools", "turns", "needle")),
    Needs("cline", 32_768, ("10 tools", "turns", "needle")),
    Needs("editor completion", 2048, ("infill",)),
    Needs("structured extraction", 2048, ("schema",)),
    Needs("chat", 2048, ("turns",)),
)
"""Contexts: the system text and tools that each sends first, with as much again."""

_ENOUGH: Final = 0.75


def verdicts(certificate: Certificate) -> dict[str, str]:
    """By program: yes or no, with the reason."""
    return {needs.program: _verdict(certificate, needs) for needs in PROGRAMS}


def _verdict(certificate: Certificate, needs: Needs) -> str:
    if certificate.n_ctx < needs.n_ctx:
        return f"no: its context has {certificate.n_ctx:,} tokens, and {needs.n_ctx:,} are needed"
    weak: list[str] = []
    for task in needs.tasks:
        mark = certificate.mark(task)
        if mark is None:
            weak.append(f"{task} was not possible")
        elif mark.share < _ENOUGH:
            weak.append(f"{task}: {mark.right} of {mark.of}")
    if weak:
        return f"no: {', '.join(weak)}"
    if certificate.cold_s is None or certificate.warm_s is None or needs.n_ctx < certificate.prompt:
        return "yes"
    return f"yes: first token after {certificate.cold_s:.1f} s, later {certificate.warm_s:.1f} s"
