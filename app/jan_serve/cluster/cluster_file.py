"""The file of `jan-serve cluster up`: which servers, on how many machines, behind which proxy; and how many fit."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from jan_serve.errors import SettingsError
from jan_serve.store.files import read_limited

MAX_REPLICAS: Final = 1000
_MAX_BYTES: Final = 1 << 20
_OURS: Final = frozenset(
    {"host", "port", "also_listen", "proxy_url", "proxy_key", "advertise_url", "drain_timeout_s"}
)
"""Settings of a server that the cluster decides."""

Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_REPLICAS)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=86_400)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1024)]


class Replicas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many servers run, and where.

    per_machine: at most; 100 is Ray's limit. slots: requests at once that one of them answers well. cpus, gpus: what
    Ray reserves on a machine for each. grow_s, shrink_s: how long a need lasts before the number changes. drain_s: time
    that running answers have at the end. surge_percent: how many new ones an update starts before it ends old ones; 0
    needs no room beside them.
    """

    min: Count = 1
    max: Count = 1
    per_machine: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    cpus: Amount = 1.0
    gpus: Amount = 0.0
    slots: Annotated[int, msgspec.Meta(ge=1, le=4096)] = 4
    grow_s: Seconds = 30.0
    shrink_s: Seconds = 600.0
    drain_s: Seconds = 600.0
    surge_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0


class ClusterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """proxy_url: of a running `jan-serve proxy`, as all machines reach it. host: this machine's address for the
    others. ray_address: of a Ray cluster that runs already; None starts one here, on ray_port. serve: settings of
    `jan-serve serve`, by name."""

    proxy_url: str
    proxy_key: str | None = None
    host: str | None = None
    ray_address: str | None = None
    ray_port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 6379
    replicas: Replicas = Replicas()
    serve: dict[str, Any] = {}


def read_cluster_file(path: Path) -> ClusterFile:
    """Raises SettingsError with the file, the field and the limit."""
    try:
        content = tomllib.loads(read_limited(path, _MAX_BYTES).decode())
        read = msgspec.convert(content, ClusterFile)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # not only of the parser: int() has a limit of digits
        raise SettingsError(f"{path}: {error}") from None
    if read.replicas.min > read.replicas.max:
        raise SettingsError(f"{path}: replicas.min is {read.replicas.min}, more than replicas.max")
    if ours := sorted(_OURS & read.serve.keys()):
        raise SettingsError(f"{path}: serve.{ours[0]} is for the cluster to decide")
    return read


class ClusterMachine(msgspec.Struct, frozen=True):
    """alive: a dead one stays listed for a while. id: Ray's. cpus, gpus: in all, reserved or not."""

    id: str
    address: str
    alive: bool
    cpus: float
    gpus: float


def capacity(wanted: Replicas, machines: Iterable[ClusterMachine]) -> int:
    """How many replicas fit on the machines."""
    return sum(
        int(
            min(
                wanted.per_machine,
                machine.cpus / wanted.cpus if wanted.cpus else inf,
                machine.gpus / wanted.gpus if wanted.gpus else inf,
            )
        )
        for machine in machines
        if machine.alive
    )
