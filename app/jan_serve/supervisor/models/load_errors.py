"""Errors for models that cannot be loaded (pure): the memory they need, the memory there is, and a remedy."""

from __future__ import annotations

from collections.abc import Sequence

from jan_serve.errors import InsufficientMemory, Unavailable
from jan_serve.store.memory.footprint import Footprint
from jan_serve.supervisor.models.eviction import CannotFit, Excluded


def load_error(
    name: str, size: Footprint, reason: CannotFit | Excluded, others: Sequence[str], budget: int | None = None
) -> InsufficientMemory | Unavailable:
    """The error for its requests. others: the models in memory. budget: configured bytes for all models."""
    match reason:
        case Excluded(pinned):
            them = "it" if len(pinned) == 1 else "them"
            text = f"The model `{name}` cannot be loaded beside {_staying(pinned)}. Unload {them} first."
            return Unavailable(text, retry_after=None, param="model")
        case CannotFit(on_device=True):
            message = (
                f"The model `{name}` needs about {_gb(reason.needed)} on the accelerators for the layers that its"
                f" settings put there (n_gpu_layers), and {_gb(reason.available)} can be had. Put fewer there."
            )
        case CannotFit():
            parts = (
                f"{_gb(size.weights)} for its weights, {_gb(size.least_context)} for its context,"
                f" {_gb(size.working)} to work with"
            )
            free = f"{_gb(reason.available)} can be had"
            if reason.pinned:
                free += f" beside {_staying(reason.pinned)}"
            elif others:
                free += f", even without {_listed(others)}"
            message = (
                f"The model `{name}` needs about {_gb(reason.needed)} of memory ({parts}), and {free}. Use a smaller"
                " quantisation, a shorter context (n_ctx), a smaller type of cache (type_k, type_v), or"
                f" {'close other programs' if budget is None else f'a memory_budget above {_gb(budget)}'}."
            )
    return InsufficientMemory(
        message,
        retry_after=None,
        param="model",
        needed_bytes=reason.needed,
        available_bytes=reason.available,
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _staying(names: Sequence[str]) -> str:
    return f"{_listed(names)}, which {'stays' if len(names) == 1 else 'stay'} in memory (pin)"


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2f} GB"
