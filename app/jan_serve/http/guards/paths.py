"""Paths by prefix."""

from __future__ import annotations


def is_below(path: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a path is one of the prefixes, or continues one after a `/`."""
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)
