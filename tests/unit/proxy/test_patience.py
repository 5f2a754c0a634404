"""Looking at a silent node."""

from __future__ import annotations

import asyncio

import pytest

from jan_serve.proxy.patience import patience
from jan_serve.proxy.upstream.connection import Failure, NodeFailure

pytestmark = pytest.mark.anyio


async def test_it_looks_again_until_it_is_over() -> None:
    looks = iter([0.001, 0.001, 0.0])
    with pytest.raises(NodeFailure, match="answered nobody for") as caught:
        async with patience(0.001, lambda: next(looks)):
            await asyncio.Event().wait()
    assert caught.value.kind is Failure.SILENT
    assert list(looks) == []


async def test_what_ends_in_time_is_left_alone() -> None:
    async with patience(60.0, lambda: 0.0):
        await asyncio.sleep(0)


async def test_other_failures_pass() -> None:
    with pytest.raises(NodeFailure, match="closed"):
        async with patience(60.0, lambda: 0.0):
            raise NodeFailure(Failure.RESET, "closed")
