"""The machines of a cluster: capacity."""

from __future__ import annotations

import pytest

from jan_serve.cluster.cluster_file import Replicas
from jan_serve.cluster.machines import ClusterMachine, capacity

DESKTOP = ClusterMachine("a", "10.0.0.2", True, 16, 1)
RACK = ClusterMachine("b", "10.0.0.3", True, 64, 4)
DEAD = ClusterMachine("c", "10.0.0.4", False, 64, 4)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Replicas(max=8), 2),
        (Replicas(max=8, per_machine=100, gpus=1), 5),
        (Replicas(max=8, per_machine=2, gpus=1), 3),
        (Replicas(max=8, per_machine=8, gpus=0.5), 10),
        (Replicas(max=8, cpus=32), 1),
        (Replicas(max=3, per_machine=3, cpus=0), 6),
        (Replicas(gpus=8), 0),
    ],
)
def test_the_scarcest_resource_decides(wanted: Replicas, expected: int) -> None:
    assert capacity(wanted, [DESKTOP, RACK, DEAD]) == expected
