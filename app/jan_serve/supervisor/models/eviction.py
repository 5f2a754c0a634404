"""Which models may be in memory together, pure: may this one be loaded now, who has to go for it, or why it cannot be.

Decided on estimates before anything happens, so that no model is unloaded for one that would not fit after all. Memory
is counted in bytes, main memory and accelerators together: llama.cpp shares the layers out between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jan_serve.store.memory.free_memory import FreeMemory


@dataclass(frozen=True, slots=True)
class Occupant:
    """A model in memory, on its way in, or on its way out (leaving).

    last_used: seconds of a monotonic clock. takes: bytes that come back when it goes; takes_on_device: the part of
    them on accelerators.
    """

    name: str
    leases: int = 0
    last_used: float = 0.0
    takes: int = 0
    takes_on_device: int = 0
    pinned: bool = False
    group: str | None = None
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class LoadCandidate:
    """A model that is waited for. Bytes as in Footprint; 0 where nothing is known of its size."""

    name: str
    least: int = 0
    total: int = 0
    on_device: int = 0
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes of a model in memory, or on its way in.

    on_device: on accelerators. unseen: what the system reports as available all the same, because it is on its way, or
    because it is pages of a file, which could be read again but are needed.
    """

    total: int = 0
    on_device: int = 0
    unseen: int = 0


@dataclass(frozen=True, slots=True)
class Room:
    """free: bytes that a new model may take now, None where memory is not looked at; free_on_device: on accelerators.

    max_loaded: models at once; 0 is no limit.
    """

    free: int | None = None
    free_on_device: int = 0
    max_loaded: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """There is room now."""


@dataclass(frozen=True, slots=True)
class Evict:
    """Unload these, which nobody uses, and look again when their memory is free."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Its room is used: give these to no new request, and look again when something changes."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CannotFit:
    """Not even with every other model gone that may go. available: bytes there would be then. pinned: who stays.

    on_device: the figures are of accelerators alone, because it is there that it does not fit.
    """

    needed: int
    available: int
    pinned: tuple[str, ...]
    on_device: bool = False


@dataclass(frozen=True, slots=True)
class Excluded:
    """Pinned models keep it out: of its own group, or as many as may be loaded at all."""

    pinned: tuple[str, ...]


Decision = Load | Evict | Wait | CannotFit | Excluded


def plan_load(candidate: LoadCandidate, occupants: Sequence[Occupant], room: Room) -> Decision:
    """What to do for a candidate. A loaded occupant of its own name is an older file of it, and has to go."""
    must_go = [other for other in occupants if _excludes(other, candidate)]
    pinned = [other for other in occupants if other.pinned and other.name != candidate.name]
    in_the_way = [other for other in must_go if other in pinned]
    if in_the_way or (room.max_loaded and len(pinned) >= room.max_loaded):
        return Excluded(_names(in_the_way or pinned))
    movable = [other for other in occupants if other not in pinned]
    if room.free is not None:
        available = room.free + _takes(movable)
        on_device = room.free_on_device + sum(other.takes_on_device for other in movable)
        if candidate.least > available:
            return CannotFit(candidate.least, available, _names(pinned))
        if candidate.on_device > on_device:
            return CannotFit(candidate.on_device, on_device, _names(pinned), on_device=True)
    others = [other for other in movable if other not in must_go]
    leaving = [other for other in others if other.leaving]
    idle = [other for other in others if not other.leaving and not other.leases]
    in_use = [other for other in others if not other.leaving and other.leases]
    free_soon = [*leaving, *sorted(idle, key=_least_recent_first)]
    chosen = _who_goes(candidate, occupants, room, must_go, free_soon)
    if chosen is None:
        more = [*free_soon, *sorted(in_use, key=_least_recent_first)]
        chosen = _who_goes(candidate, occupants, room, must_go, more) or movable
    if not chosen:
        return Load()
    if any(other.leases for other in chosen):
        return Wait(_names(chosen))
    now = [other for other in chosen if not other.leaving]
    return Evict(_names(now)) if now else Wait(())


def free_for_models(free: FreeMemory, taken: Iterable[Taken], budget: int | None) -> int:
    """Bytes that a new model may take, from what the system has free and what it does not see taken.

    taken: by every model that is not gone. budget: bytes for all models together.
    """
    known = list(taken)
    room = free.usable - sum(model.unseen for model in known)
    if budget is not None:
        room = min(room, budget - sum(model.total for model in known))
    return max(room, 0)


def _excludes(other: Occupant, candidate: LoadCandidate) -> bool:
    return other.name == candidate.name or (other.group is not None and other.group == candidate.group)


def _who_goes(
    candidate: LoadCandidate,
    occupants: Sequence[Occupant],
    room: Room,
    must_go: list[Occupant],
    more: list[Occupant],
) -> list[Occupant] | None:
    """The fewest of `more`, from its beginning, that make room beside those who must go; None if all of them do not.

    Room for the whole context is looked for first, then for the least.
    """
    for amount in (candidate.total, candidate.least):
        for count in range(len(more) + 1):
            chosen = [*must_go, *more[:count]]
            if not _fits(candidate, amount, occupants, room, chosen):
                continue
            # A small model at the beginning may turn out not to matter.
            for other in more[:count]:
                without = [each for each in chosen if each is not other]
                if _fits(candidate, amount, occupants, room, without):
                    chosen = without
            return chosen
    return None


def _fits(
    candidate: LoadCandidate, amount: int, occupants: Sequence[Occupant], room: Room, chosen: list[Occupant]
) -> bool:
    if room.max_loaded and len(occupants) - len(chosen) >= room.max_loaded:
        return False
    return _has_memory(candidate, amount, room, chosen)


def _has_memory(candidate: LoadCandidate, amount: int, room: Room, gone: Sequence[Occupant]) -> bool:
    if room.free is None:
        return True
    on_device = room.free_on_device + sum(other.takes_on_device for other in gone)
    return amount <= room.free + _takes(gone) and candidate.on_device <= on_device


def _takes(occupants: Iterable[Occupant]) -> int:
    return sum(other.takes for other in occupants)


def _names(occupants: Iterable[Occupant]) -> tuple[str, ...]:
    return tuple(other.name for other in occupants)


def _least_recent_first(occupant: Occupant) -> tuple[float, str]:
    return occupant.last_used, occupant.name
