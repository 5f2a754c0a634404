"""The tag that a name without one stands for, as in registries of images. Some clients always send a tag."""

from __future__ import annotations

from typing import Final

DEFAULT_TAG: Final = ":latest"


def without_default_tag(name: str) -> str:
    return name[: -len(DEFAULT_TAG)] if has_default_tag(name) else name


def has_default_tag(name: str) -> bool:
    """In any case."""
    return name.lower().endswith(DEFAULT_TAG)
