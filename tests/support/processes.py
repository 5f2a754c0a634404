"""Inspects processes through psutil."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

import psutil


def alive(pid: int) -> bool:
    """Whether it exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


HELPERS = (["render"], ["compile"], ["media"], ["headers"])
"""The last argument of processes that serve all models."""

_BEFORE: set[int] = set()


def remember_children() -> None:
    """Exclude the current children from `children`: workers shared by the test session."""
    _BEFORE.clear()
    _BEFORE.update(child.pid for child in psutil.Process().children())


def children() -> list[psutil.Process]:
    """Our child processes, zombies included."""
    return [child for child in psutil.Process().children() if child.pid not in _BEFORE]


def workers_of(pid: int) -> list[psutil.Process]:
    """The running processes that a server started for models; not HELPERS."""
    server = psutil.Process(pid)
    found: list[psutil.Process] = []
    for child in server.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since
            line = child.cmdline()
            # Ended, or about to become another program.
            if line and line != server.cmdline() and line[-1:] not in HELPERS:
                found.append(child)
    return found


def zombies() -> list[int]:
    """Children that ended and were not reaped."""
    return [child.pid for child in children() if child.status() == psutil.STATUS_ZOMBIE]


def wait_until(condition: Callable[[], bool], limit_s: float = 60.0) -> float:
    """Poll until the condition holds; the seconds it took. Fails after the limit. For other processes only."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > limit_s:
            raise AssertionError(f"not true within {limit_s} s")
        time.sleep(0.005)
    return time.monotonic() - start


async def until(condition: Callable[[], bool], limit_s: float = 60.0) -> float:
    """As `wait_until`, without blocking the event loop."""
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > limit_s:
            raise AssertionError(f"not true within {limit_s} s")
        await asyncio.sleep(0.005)
    return time.monotonic() - start
