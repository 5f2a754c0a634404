"""Pools of helper processes for tests, which leave no process behind."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

from jan_serve.helpers.kinds import HelperKind
from jan_serve.helpers.pool import HelperPool
from tests.support.processes import children

Q = TypeVar("Q")
A = TypeVar("A")


@asynccontextmanager
async def helper_pool(
    kind: HelperKind[Q, A], command: Sequence[str] | None = None, **limits: Any
) -> AsyncGenerator[HelperPool[Q, A]]:
    """limits: fields of the kind that differ. Processor time is limited, and not how long a busy machine takes."""
    pool = HelperPool(replace(kind, **{"wall_limit_s": 300.0, **limits}), command)
    try:
        yield pool
    finally:
        await pool.close()
    assert children() == []
