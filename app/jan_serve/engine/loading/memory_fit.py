"""Fits the context into memory, and answers into the context."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import psutil

from jan_serve.core.models import ModelFacts
from jan_serve.engine.cache.state_tiers import rope_factors
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.errors import InsufficientMemory
from jan_serve.ipc.messages import EngineSettings
from jan_serve.placement.device_plan import kv_bytes_per_token

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


def grows_to(settings: EngineSettings, n_ctx: int, model: LlamaModel) -> int:
    """The longest context that the model may get, as far as memory allows; 0 if its context does not grow.

    States of a context with other RoPE factors are of no use in the longer one.
    """
    if not settings.grow_context:
        return 0
    longest, metadata = model.n_ctx_train, model.metadata()
    if rope_factors(metadata, longest) != rope_factors(metadata, n_ctx):
        longest = int(metadata[f"{model.architecture}.rope.scaling.original_context_length"])
    return longest if longest > n_ctx else 0


_KEPT_FREE = 0.1
"""Share of available memory that a longer context leaves to other programs."""


def check_growth(settings: EngineSettings, facts: ModelFacts, n_ctx: int) -> None:
    """Raises InsufficientMemory if a context of n_ctx tokens does not fit beside the one that it replaces.

    While states move, they take memory too. llama.cpp alone knows whether a device has room.
    """
    per_token = kv_bytes_per_token(settings)
    on_cpu = 1 - min(1.0, facts.n_gpu_layers / (facts.n_layer + 1))
    available = int(psutil.virtual_memory().available * (1 - _KEPT_FREE))
    if settings.use_mmap:
        available -= int(facts.size_bytes * on_cpu)  # pages of the file, which count as available
    needed, free = (n_ctx + facts.n_ctx) * per_token * on_cpu, max(0, available)
    if settings.context_bytes is not None and n_ctx * per_token > settings.context_bytes:
        needed, free = n_ctx * per_token, settings.context_bytes
    if needed > free:
        raise InsufficientMemory(
            f"A context of {n_ctx} tokens needs {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free.",
            retry_after=None,
        )
