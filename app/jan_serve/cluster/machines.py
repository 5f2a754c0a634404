"""The machines of a Ray cluster, and how many replicas they hold."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from jan_serve.cluster.cluster_file import Replicas


class ClusterMachine(msgspec.Struct, frozen=True):
    """alive: a dead one stays listed for a while. id: Ray's. cpus, gpus: in all, reserved or not."""

    id: str
    address: str
    alive: bool
    cpus: float
    gpus: float


def capacity(wanted: Replicas, machines: Iterable[ClusterMachine]) -> int:
    """How many replicas fit on the machines."""
    return sum(_capacity(wanted, machine) for machine in machines if machine.alive)


def _capacity(wanted: Replicas, machine: ClusterMachine) -> int:
    limits = [float(wanted.per_machine)]
    if wanted.cpus:
        limits.append(machine.cpus / wanted.cpus)
    if wanted.gpus:
        limits.append(machine.gpus / wanted.gpus)
    return int(min(limits))
