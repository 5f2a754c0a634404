"""Tests that start no process: a guard that makes a start fail, by an audit hook, which nothing in Python gets past."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator
from typing import Final

import pytest

_STARTS: Final = frozenset(
    {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"}
)
_refused: list[str] | None = None
"""The starts that were refused; None while processes may start."""


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS and _refused is not None:
        started = f"{event}{arguments[:2]}"
        _refused.append(started)
        pytest.fail(f"tests/unit starts no process: {started} belongs into tests/integration")


sys.addaudithook(_refuse)


@contextlib.contextmanager
def no_processes() -> Generator[None]:
    """In the block a start fails; so does the block's end, where the code under test has swallowed that."""
    global _refused
    _refused = []
    try:
        yield
        assert _refused == [], "tests/unit starts no process: these belong into tests/integration"
    finally:
        _refused = None
