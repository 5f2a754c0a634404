"""What calibrations, `certify`, `selfcheck` and `bench` measure, and what it means (pure)."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """temperature: divides the logarithms of the options' probabilities. examples: how many it was fitted on.

    accuracy: the share of them whose answer is the most probable option. loss_before, loss_after: the mean negative
    logarithm of the probability of their answers, at temperature 1 and at this one. at_bound: whether a better
    temperature lies outside the bounds.
    """

    temperature: float
    examples: int
    accuracy: float
    loss_before: float
    loss_after: float
    at_bound: bool


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


_SLOWER: Final = 0.5
"""Other work on the machine explains more than that."""
_LESS_MEMORY: Final = 0.5


class SelfCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One run. at: seconds since 1970. answers: SHA-256 of the built-in model's answer, by the prompt's name.

    prompt_per_s, tokens_per_s: tokens read and written a second. devices: their memory in bytes, by name.
    compared_with: the version whose run this one was compared with. findings: what became worse, for people.
    """

    version: str
    llama_cpp: str
    at: float
    answers: dict[str, str]
    prompt_per_s: float
    tokens_per_s: float
    devices: dict[str, int]
    free_bytes: int
    compared_with: str | None = None
    findings: tuple[str, ...] = ()
    format: int = 1


def worse(before: SelfCheck, now: SelfCheck) -> tuple[str, ...]:
    """What is worse now, or different where nothing should be: one sentence each."""
    since = f"than with version {before.version}"
    found: list[str] = []
    changed = sorted(
        name for name, digest in now.answers.items() if before.answers.get(name, digest) != digest
    )
    if changed:
        found.append(
            f"The built-in model answers differently {since}: {', '.join(changed)}"
            f" (llama.cpp {before.llama_cpp} and {now.llama_cpp})."
        )
    for what, old, new in (
        ("reads prompts", before.prompt_per_s, now.prompt_per_s),
        ("writes", before.tokens_per_s, now.tokens_per_s),
    ):
        if new < _SLOWER * old:
            found.append(f"The built-in model {what} slower {since}: {new:.0f} tokens/s, not {old:.0f}.")
    found += [f"The device {name} is gone." for name in sorted(before.devices.keys() - now.devices.keys())]
    found += [
        f"The device {name} has less memory {since}: {now.devices[name] / 1e9:.1f} GB, not {size / 1e9:.1f} GB."
        for name, size in sorted(before.devices.items())
        if 0 <= now.devices.get(name, -1) < _LESS_MEMORY * size
    ]
    if now.free_bytes < _LESS_MEMORY * before.free_bytes:
        found.append(
            f"Less memory is free {since}: {now.free_bytes / 1e9:.1f} GB, not {before.free_bytes / 1e9:.1f} GB."
        )
    return tuple(found)


class FirstToken(msgspec.Struct, frozen=True):
    """tokens: length of a prompt that no cache has. seconds: until the first token. per_second: tokens read."""

    tokens: int
    seconds: float
    per_second: float


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """One run. at: seconds since 1970. writes: tokens a second of all clients together, by their number.

    memory: bytes of the model's process. bandwidth: bytes a second that all cores read together. bandwidth_share: of
    it, by one client, each of whose tokens reads all weights (experts that rest are counted too). None: not known.
    """

    model: str
    version: str
    at: float
    first: tuple[FirstToken, ...]
    writes: dict[int, float]
    memory: int | None = None
    bandwidth: float | None = None
    bandwidth_share: float | None = None
    format: int = 1
