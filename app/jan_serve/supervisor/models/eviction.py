"""Decides when an idle model is unloaded, whether a model can load now and which models to evict for it, or words the
error why it cannot fit. Pure.

Memory is estimated, in bytes of main memory and accelerators together: llama.cpp distributes the layers over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from jan_serve.errors import InsufficientMemory, Unavailable
from jan_serve.store.model_memory import Footprint, FreeMemory


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long a model stays in memory. ttl_s: without a request; negative is for ever. pinned: never evicted, nor
    unloaded when idle. group: models of one group are never in memory together."""

    ttl_s: float = 600.0
    pinned: bool = False
    group: str | None = None


def ttl_left_s(retention: Retention, ttl_s: float | None, last_used: float, now: float) -> float | None:
    """How long an idle model may still stay loaded; None is for ever. ttl_s: in place of the retention's, which then
    pins nothing."""
    if ttl_s is None:
        ttl_s = -1.0 if retention.pinned else retention.ttl_s
    return None if ttl_s < 0 else max(0.0, last_used + ttl_s - now)


def unload_due_s(left_s: float | None, *, leases: int, is_awaited: bool) -> float | None:
    """Seconds until a model is unloaded because it is idle; None while a request has it or waits for it, and for ever.
    left_s: see `ttl_left_s`."""
    return None if leases or is_awaited else left_s


class Occupant(msgspec.Struct, frozen=True):
    """A model that is loaded, loading or unloading (leaving). last_used: seconds of a monotonic clock. memory: bytes
    that its unload frees; memory_on_device: of them, those on accelerators."""

    name: str
    leases: int = 0
    last_used: float = 0.0
    memory: int = 0
    memory_on_device: int = 0
    pinned: bool = False
    group: str | None = None
    leaving: bool = False


class MemoryUse(msgspec.Struct, frozen=True):
    """Bytes of a model that is loaded or loading. on_device: on accelerators. unseen: bytes that the system still
    reports as available: not allocated yet, or pages of a mapped file, which the system could drop but the model
    needs."""

    total: int = 0
    on_device: int = 0
    unseen: int = 0


class Room(msgspec.Struct, frozen=True):
    """free: bytes that a new model may use now, None if memory is not measured; free_on_device: on accelerators.
    max_loaded: models at once; 0 is no limit."""

    free: int | None = None
    free_on_device: int = 0
    max_loaded: int = 0
    has_accelerators: bool = True


class Load(msgspec.Struct, frozen=True):
    """The model fits now."""


class Evict(msgspec.Struct, frozen=True):
    """Unload these idle models, and plan again when their memory is free."""

    names: tuple[str, ...]


class Wait(msgspec.Struct, frozen=True):
    """Models in use take its room: grant these to no new request, and plan again after a change."""

    names: tuple[str, ...]


class CannotFit(msgspec.Struct, frozen=True):
    """It does not fit even with every unpinned model evicted. available: bytes that would be free then. on_device:
    the figures are those of the accelerators, where it does not fit."""

    needed: int
    available: int
    pinned: tuple[str, ...]
    on_device: bool = False


class Excluded(msgspec.Struct, frozen=True):
    """Pinned models exclude it: one of its group, or as many as max_loaded."""

    pinned: tuple[str, ...]


Decision = Load | Evict | Wait | CannotFit | Excluded


def plan_load(
    name: str, size: Footprint, group: str | None, occupants: Sequence[Occupant], room: Room
) -> Decision:
    """For a model that requests wait for. An occupant of its name holds an older file of it, and must go."""
    must_go = [each for each in occupants if each.name == name or (group is not None and each.group == group)]
    pinned = [other for other in occupants if other.pinned and other.name != name]
    in_the_way = [other for other in must_go if other in pinned]
    if in_the_way or (room.max_loaded and len(pinned) >= room.max_loaded):
        return Excluded(_names(in_the_way or pinned))
    movable = [other for other in occupants if other not in pinned]
    if room.free is not None:
        available = room.free + _memory(movable)
        on_device = room.free_on_device + sum(other.memory_on_device for other in movable)
        if size.least > available:
            return CannotFit(size.least, available, _names(pinned))
        if _needs_device(size, room) > on_device:
            return CannotFit(size.on_device, on_device, _names(pinned), on_device=True)
    others = [other for other in movable if other not in must_go]
    leaving = [other for other in others if other.leaving]
    idle = [other for other in others if not other.leaving and not other.leases]
    in_use = [other for other in others if not other.leaving and other.leases]
    free_soon = [*leaving, *sorted(idle, key=_least_recent_first)]
    chosen = _smallest_eviction(size, occupants, room, must_go, free_soon)
    if chosen is None:
        more = [*free_soon, *sorted(in_use, key=_least_recent_first)]
        chosen = _smallest_eviction(size, occupants, room, must_go, more) or movable
    if not chosen:
        return Load()
    if any(other.leases for other in chosen):
        return Wait(_names(chosen))
    now = [other for other in chosen if not other.leaving]
    return Evict(_names(now)) if now else Wait(())


def free_for_models(free: FreeMemory, used: Iterable[MemoryUse], budget: int | None) -> int:
    """Bytes that a new model may use. used: by every model that is not gone. budget: bytes for all models together."""
    uses = list(used)
    room = free.usable - sum(use.unseen for use in uses)
    if budget is not None:
        room = min(room, budget - sum(use.total for use in uses))
    return max(room, 0)


def _needs_device(size: Footprint, room: Room) -> int:
    """Without any accelerator the model runs on the CPU, unless its settings require one: the worker knows."""
    return size.on_device if room.has_accelerators else 0


def _smallest_eviction(
    size: Footprint, occupants: Sequence[Occupant], room: Room, must_go: list[Occupant], more: list[Occupant]
) -> list[Occupant] | None:
    """Those that must go and the fewest of `more`, for the whole context, else the least; None if there is no way."""
    for amount in (size.total, size.least):
        for count in range(len(more) + 1):
            chosen = [*must_go, *more[:count]]
            if not _fits(size, amount, occupants, room, chosen):
                continue
            # A small model at the start may turn out to be unnecessary.
            for other in more[:count]:
                without = [each for each in chosen if each is not other]
                if _fits(size, amount, occupants, room, without):
                    chosen = without
            return chosen
    return None


def _fits(
    size: Footprint, amount: int, occupants: Sequence[Occupant], room: Room, chosen: list[Occupant]
) -> bool:
    if room.max_loaded and len(occupants) - len(chosen) >= room.max_loaded:
        return False
    if room.free is None:
        return True
    on_device = room.free_on_device + sum(other.memory_on_device for other in chosen)
    return amount <= room.free + _memory(chosen) and _needs_device(size, room) <= on_device


def _memory(occupants: Iterable[Occupant]) -> int:
    return sum(other.memory for other in occupants)


def _names(occupants: Iterable[Occupant]) -> tuple[str, ...]:
    return tuple(other.name for other in occupants)


def _least_recent_first(occupant: Occupant) -> tuple[float, str]:
    return occupant.last_used, occupant.name


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
        message, retry_after=None, param="model", needed_bytes=reason.needed, available_bytes=reason.available
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _staying(names: Sequence[str]) -> str:
    return f"{_listed(names)}, which {'stays' if len(names) == 1 else 'stay'} in memory (pin)"


def _gb(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2f} GB"
