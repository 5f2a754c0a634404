"""What `jan-serve certify` found that a model can do here, and for which programs that is enough (pure)."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec


class Mark(msgspec.Struct, frozen=True):
    """One task. right, of: how many of its cases were answered as they must be. note: a measured value, in words.

    tokens: length of its prompts, where that is what the task tries.
    """

    task: str
    right: int
    of: int
    note: str = ""
    tokens: int = 0

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

    def mark(self, task: str, n_ctx: int) -> Mark | None:
        """The cases of a task whose prompts fit a context of n_ctx tokens; None if there are none."""
        found = [mark for mark in self.marks if mark.task == task and mark.tokens <= n_ctx]
        if not found:
            return None
        return Mark(task, sum(mark.right for mark in found), sum(mark.of for mark in found))


class Needs(NamedTuple):
    """What a program asks of a model. program: its name in `connect`, or a use. title: for people.

    n_ctx: its prompt with tools, and room for a session. tasks: that must hold.
    """

    program: str
    title: str
    n_ctx: int
    tasks: tuple[str, ...]


PROGRAMS: Final = (
    Needs("claude", "Claude Code", 32_768, ("10 tools", "50 tools", "tool result", "turns", "needle")),
    Needs("codex", "Codex", 32_768, ("10 tools", "tool result", "turns", "needle")),
    Needs("opencode", "opencode", 32_768, ("10 tools", "tool result", "turns", "needle")),
    Needs("cline", "Cline", 32_768, ("10 tools", "tool result", "turns", "needle")),
    Needs("completion", "Editor completion", 2048, ("infill",)),
    Needs("extraction", "Structured extraction", 2048, ("schema kept", "schema right")),
    Needs("chat", "Chat", 2048, ("turns",)),
)
"""Contexts: the system text and tools that each sends first, with as much again."""

_ENOUGH: Final = 0.75


def verdicts(certificate: Certificate) -> dict[str, str]:
    """A sentence by program: yes or no, with the reason."""
    return {needs.program: f"{needs.title}{_verdict(certificate, needs)}" for needs in PROGRAMS}


def _verdict(certificate: Certificate, needs: Needs) -> str:
    if certificate.n_ctx < needs.n_ctx:
        return f": no, {certificate.n_ctx:,} tokens of context ({needs.n_ctx:,} are needed)"
    weak: list[str] = []
    for task in needs.tasks:
        mark = certificate.mark(task, needs.n_ctx)
        if mark is None:
            weak.append(f"{task} was not possible")
        elif mark.share < _ENOUGH:
            weak.append(f"{task} {mark.right} of {mark.of}")
    length = certificate.n_ctx
    context = f" at {length // 1024}k" if length >= 1024 else f" at {length}"
    if weak:
        return f"{context}: no, {', '.join(weak)}"
    if certificate.cold_s is None or certificate.warm_s is None or needs.n_ctx < certificate.prompt:
        return f"{context}: yes"
    return f"{context}: yes, first token {certificate.cold_s:.2g} s cold, {certificate.warm_s:.2g} s warm"
