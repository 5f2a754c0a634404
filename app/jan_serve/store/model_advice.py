"""Advises which models of the catalogue suit a purpose on a machine, whose memory bandwidth bounds a CPU's speed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import inf, log2
from typing import Final, NamedTuple

import msgspec
import psutil

from jan_serve.errors import InvalidRequest
from jan_serve.store.hub.references import CatalogueEntry
from jan_serve.store.model_memory import FreeMemory

_BLOCK_BYTES: Final = 64 << 20
_MAX_READERS: Final = 8
_RUNS: Final = 3


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def memory_bandwidth() -> float:
    """Bytes a second that all cores read together, of 64 MiB for each. Blocks for a moment, the first time."""
    import numpy as np

    blocks = [np.ones(_BLOCK_BYTES // 4, np.float32) for _ in range(min(usable_cores(), _MAX_READERS))]

    def rates(pool: ThreadPoolExecutor) -> Iterator[float]:
        for _ in range(_RUNS):
            began = time.perf_counter()
            for block in [pool.submit(np.max, block) for block in blocks]:
                block.result()
            yield sum(block.nbytes for block in blocks) / (time.perf_counter() - began)

    with ThreadPoolExecutor(len(blocks)) as pool:
        return max(rates(pool))


_GB: Final = 10**9
_BANDWIDTH_SHARE: Final = 0.7
"""Share of the measured bandwidth that one answer gets, as `jan-serve bench` finds it for models beyond the caches."""
_QUICKER: Final = 1.5
NUM_ADVISED: Final = 3


class Purpose(NamedTuple):
    """title: for people. kinds: what the model must be. least_speed: tokens a second with which it is of use."""

    title: str
    kinds: frozenset[str]
    least_speed: float = 0.0


PURPOSES: Final = {
    "chat": Purpose("conversations", frozenset({"chat"}), 8.0),
    "agents": Purpose("agents, which call tools", frozenset({"chat", "tools"}), 15.0),
    "code": Purpose("code", frozenset({"code"}), 8.0),
    "completion": Purpose("completion of code while you type", frozenset({"fim"}), 20.0),
    "thinking": Purpose("problems that take thought", frozenset({"thinking"}), 15.0),
    "pictures": Purpose("questions about pictures", frozenset({"vision"}), 8.0),
    "embeddings": Purpose("embeddings, for search", frozenset({"embedding"})),
    "ranking": Purpose("ranking of search results", frozenset({"rerank"})),
}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """free: for models. bandwidth: of the main memory, in bytes a second."""

    free: FreeMemory
    cores: int
    bandwidth: float


def this_machine(free_memory: Callable[[], FreeMemory] | None = None) -> Machine:
    """Measures the machine; blocks for about a second. free_memory: None takes what the system calls available."""
    free = FreeMemory(int(psutil.virtual_memory().available)) if free_memory is None else free_memory()
    return Machine(free=free, cores=usable_cores(), bandwidth=memory_bandwidth())


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the catalogue on a machine. bytes_per_token: weights that a token reads. speed: tokens a second that
    one answer may get on the CPU; None if the model fits a graphics card, whose bandwidth is not measured, or writes
    nothing. reason: for people."""

    entry: CatalogueEntry
    fits: bool
    bytes_per_token: int
    speed: float | None
    reason: str = ""


def purpose_named(name: str) -> Purpose:
    """Raises InvalidRequest, which lists the names."""
    purpose = PURPOSES.get(name)
    if purpose is None:
        raise InvalidRequest(f"for: {name[:40]!a} is none of {', '.join(PURPOSES)}", param="for")
    return purpose


def advised(entries: Iterable[CatalogueEntry], purpose: Purpose, machine: Machine) -> list[Advice]:
    """At most three models for a purpose, the recommended one first. If none fits the machine, the smallest ones."""
    suited = [on_machine(entry, machine) for entry in entries if purpose.kinds <= set(entry.kinds)]
    fitting = [advice for advice in suited if advice.fits]
    if not fitting:
        smallest = sorted(suited, key=lambda advice: advice.entry.memory_gb)[:NUM_ADVISED]
        return _with_reasons(smallest, "needs more memory than is free")
    quick = [advice for advice in fitting if _speed(advice) >= purpose.least_speed]
    best = max(quick, key=_ability) if quick else max(fitting, key=_speed)
    why = "the most able one that fits"
    if purpose.least_speed:
        why = f"the most able one that writes {purpose.least_speed:g} tokens a second here"
    chosen = _with_reasons([best], why if quick else "the quickest one that fits")
    others = sorted((advice for advice in fitting if advice is not best), key=_ability, reverse=True)
    quicker = [advice for advice in others if _is_quicker(advice, best)]
    chosen += _with_reasons(quicker[:1], "quicker, and less able")
    abler = [advice for advice in others if _ability(advice) > _ability(best)]
    bearable = [advice for advice in abler if _speed(advice) >= purpose.least_speed / 2]
    chosen += _with_reasons(bearable[:1] or abler[-1:], "more able, and slower")
    taken = {advice.entry.name for advice in chosen}
    rest = [advice for advice in others if advice.entry.name not in taken]
    return chosen + _with_reasons(rest[: NUM_ADVISED - len(chosen)], "fits too")


def on_machine(entry: CatalogueEntry, machine: Machine) -> Advice:
    """One model of the catalogue on this machine."""
    needed = entry.memory_gb * _GB
    used = (entry.active or entry.parameters) / entry.parameters
    per_token = round(entry.size_gb * _GB * used)
    writes = not {"embedding", "rerank"} & set(entry.kinds)
    on_device = 0 < needed <= sum(machine.free.accelerators)
    return Advice(
        entry=entry,
        fits=needed <= machine.free.usable,
        bytes_per_token=per_token,
        speed=machine.bandwidth * _BANDWIDTH_SHARE / per_token if writes and not on_device else None,
    )


def _with_reasons(advices: Sequence[Advice], reason: str) -> list[Advice]:
    return [msgspec.structs.replace(advice, reason=reason) for advice in advices]


def _speed(advice: Advice) -> float:
    return inf if advice.speed is None else advice.speed


def _ability(advice: Advice) -> tuple[int, str, float]:
    """Larger is better; of about the same size, the later one."""
    entry = advice.entry
    return round(2 * log2(entry.parameters)), entry.since, entry.parameters


def _is_quicker(advice: Advice, than: Advice) -> bool:
    if advice.speed is None or than.speed is None:
        return advice.bytes_per_token * _QUICKER <= than.bytes_per_token
    return advice.speed >= than.speed * _QUICKER
