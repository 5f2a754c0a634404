"""What a version of jan-serve measured on this machine, and what is worse than before (pure)."""

from __future__ import annotations

from typing import Final

import msgspec

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
