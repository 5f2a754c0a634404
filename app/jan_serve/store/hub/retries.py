"""Transient failures of a hub are retried with back-off and the hub's Retry-After."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from jan_serve.errors import HubUnavailable

T = TypeVar("T")


class RetryPolicy(msgspec.Struct, frozen=True):
    """Timeouts in seconds. tries: attempts without progress."""

    connect_s: float = 10.0
    read_s: float = 20.0
    answer_s: float = 60.0
    tries: int = 5
    backoff_s: float = 1.0
    max_wait_s: float = 60.0


class TransientFailure(Exception):
    """A failure that may be temporary. wait_s: from the hub's Retry-After."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait_s = wait_s


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    host: str,
    progress: Callable[[], int] | None = None,
) -> T:
    """The result of the first attempt without TransientFailure. An increase of `progress` resets the count of attempts.
    Raises HubUnavailable with the last reason."""
    failures = 0
    reached = progress() if progress else 0
    while True:
        try:
            return await attempt()
        except TransientFailure as failure:
            now = progress() if progress else 0
            failures = 1 if now > reached else failures + 1
            reached = max(now, reached)
            if failures >= policy.tries:
                reason = f"{host} failed {failures} times in a row; the last time: {failure.reason}."
                raise HubUnavailable(reason, retry_after=failure.wait_s or 60.0) from None
            await asyncio.sleep(_wait_for(failure, failures, policy, host))


def _wait_for(failure: TransientFailure, failures: int, policy: RetryPolicy, host: str) -> float:
    """Seconds. Raises HubUnavailable if the hub asks for a longer wait than the policy allows."""
    if failure.wait_s is None:
        return min(policy.max_wait_s, policy.backoff_s * 2 ** (failures - 1)) * random.uniform(0.75, 1.25)
    if failure.wait_s > policy.max_wait_s:
        reason = f"{host} asks to wait for {failure.wait_s:.0f} s ({failure.reason})."
        raise HubUnavailable(reason, retry_after=failure.wait_s)
    return failure.wait_s
