"""Contexts that fit into memory and have computed a token, and the tiers of their states."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from jan_serve.core.models import ModelFacts
from jan_serve.engine.cache.state_cache import StateCache
from jan_serve.engine.cache.state_files import StateFiles, default_budget
from jan_serve.engine.cache.state_identity import rope_factors, state_files_key
from jan_serve.engine.llama.context import DECODE_OK, Batch, LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.errors import InsufficientMemory
from jan_serve.ipc.messages import EngineSettings, LoadModel
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
    """The longest context that the model may get, as far as memory allows; 0 if its context does not grow. States of a
    context with other RoPE factors are of no use in the longer one."""
    if not settings.grow_context:
        return 0
    longest, metadata = model.n_ctx_train, model.metadata()
    if rope_factors(metadata, longest) != rope_factors(metadata, n_ctx):
        longest = int(metadata[f"{model.architecture}.rope.scaling.original_context_length"])
    return longest if longest > n_ctx else 0


_KEPT_FREE = 0.1  # share of available memory that a longer context leaves to other programs


def check_growth(settings: EngineSettings, facts: ModelFacts, n_ctx: int) -> None:
    """Raises InsufficientMemory if a context of n_ctx tokens does not fit beside the one that it replaces. While states
    move, they take memory too. llama.cpp alone knows whether a device has room."""
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


_TEXT = "a b\n0\t\x01\x7fé漢😀\u0378 <s>"
"""Characters of one to four bytes, which few vocabularies have all: the others become bytes."""


def compute_a_token(context: LlamaContext) -> None:
    """Tokenise a text, compute its first token, and empty the context. Blocks for about a step. A file at which
    llama.cpp ends the process is a failed load."""
    model = context.model
    tokens = model.vocab.tokenize(_TEXT, add_special=True, parse_special=False)
    if model.has_encoder or not model.vocab.n_tokens:
        return
    batch = Batch(1)
    batch.add_one(tokens[0] if tokens else 0, 0, 0)
    code = context.decode(batch)
    context.clear()
    if code != DECODE_OK:
        logger.warning("llama.cpp could not compute a token of the model (llama_decode: %d)", code)


_MAX_CACHE_RAM = 2 * 2**30


def make_states(request: LoadModel, context: LlamaContext, longest: int) -> StateCache:
    """The tiers below the KV cache, sized by the settings or the machine; without files that cannot be made.

    longest: tokens that the context may hold.
    """
    settings, model = request.settings, context.model
    ram = settings.cache_ram_bytes
    if ram is None:
        ram = min(_MAX_CACHE_RAM, psutil.virtual_memory().total // 16)
    if settings.cache_ram_most is not None:
        ram = min(ram, settings.cache_ram_most)
    disk = settings.cache_disk_bytes
    files = None
    if settings.cache_dir is not None and disk != 0:
        root = Path(settings.cache_dir)
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            if disk is None:
                disk = default_budget(root)
            factors = rope_factors(model.metadata(), context.n_ctx)
            key = state_files_key(request, factors)
            files = StateFiles(root, key, disk, max_tokens=longest)
        except OSError as error:
            logger.warning("prompt states are not saved to disk: %s", error)
    # A state with sliding windows holds only what the end of its sequence attends to: it is usable as a whole only.
    return StateCache(ram, files, whole_only=model.is_recurrent or model.n_swa > 0)
