"""The tag `:latest` of a model's name: Ollama and its clients write it where a name has none."""

from __future__ import annotations

from typing import Final

LATEST_TAG: Final = ":latest"


def with_latest_tag(name: str) -> str:
    """`name` with `:latest` if it has no tag."""
    return name if ":" in name.rpartition("/")[2] else name + LATEST_TAG


def without_latest_tag(name: str) -> str:
    return name[: -len(LATEST_TAG)] if has_latest_tag(name) else name


def has_latest_tag(name: str) -> bool:
    """Ignores upper and lower case."""
    return name.lower().endswith(LATEST_TAG)
