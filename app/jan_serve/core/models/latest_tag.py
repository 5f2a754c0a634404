"""The tag of names without one: Ollama's clients always send a tag."""

from __future__ import annotations

from typing import Final

LATEST: Final = ":latest"


def without_latest(name: str) -> str:
    return name[: -len(LATEST)] if has_latest(name) else name


def has_latest(name: str) -> bool:
    """In any case, as Ollama compares names."""
    return name.lower().endswith(LATEST)
