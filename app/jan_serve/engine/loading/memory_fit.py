"""Fits the context into memory, and answers into the context."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from jan_serve.errors import InsufficientMemory

T = TypeVar("T")
logger = logging.getLogger(__name__)


def with_shorter_context(create: Callable[[int], T], n_ctx: int, *, min_n_ctx: int) -> tuple[T, int]:
    """Call `create` with n_ctx, then with half of it, and so on, until it fits. Returns its result and that length.

    Free memory is an estimate, and other programs allocate too. Raises InsufficientMemory if `min_n_ctx` does not fit.
    """
    while True:
        try:
            return create(n_ctx), n_ctx
        except InsufficientMemory:
            if n_ctx <= min_n_ctx:
                raise
            n_ctx = max(min_n_ctx, n_ctx // 2)
            logger.warning("not enough memory: trying a context of %d tokens", n_ctx)


def default_parallel(n_ctx: int) -> int:
    """Default number of parallel sequences: one per 256 tokens of context, at most 8."""
    return max(1, min(8, n_ctx // 256))
