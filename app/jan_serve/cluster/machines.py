"""The machines of a Ray cluster: how many replicas they hold, and which versions they have.

All machines need the same Python, Ray and jan-serve.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable

import msgspec

from jan_serve import __version__
from jan_serve.cluster.cluster_file import Replicas


class Machine(msgspec.Struct, frozen=True):
    """alive: a dead one stays listed for a while. id: Ray's. cpus, gpus: in all, reserved or not."""

    id: str
    address: str
    alive: bool
    cpus: float
    gpus: float


def capacity(wanted: Replicas, machines: Iterable[Machine]) -> int:
    """How many replicas fit on the machines."""
    return sum(_capacity(wanted, machine) for machine in machines if machine.alive)


def _capacity(wanted: Replicas, machine: Machine) -> int:
    limits = [float(wanted.per_machine)]
    if wanted.cpus:
        limits.append(machine.cpus / wanted.cpus)
    if wanted.gpus:
        limits.append(machine.gpus / wanted.gpus)
    return int(min(limits))


class Versions(msgspec.Struct, frozen=True):
    """Ray compares Python's patch release too: it exchanges pickles."""

    python: str
    ray: str
    jan_serve: str

    def __str__(self) -> str:
        return f"Python {self.python}, Ray {self.ray}, jan-serve {self.jan_serve}"


def versions_here(ray: str) -> Versions:
    return Versions(platform.python_version(), ray, __version__)


def differences(here: Versions, others: Iterable[tuple[str, Versions]]) -> list[str]:
    """A sentence for each machine that has something else. others: with the machines' addresses."""
    return [f"{address} has {found}; this machine has {here}" for address, found in others if found != here]
