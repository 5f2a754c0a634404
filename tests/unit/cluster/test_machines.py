"""The machines of a cluster: capacity and versions."""

from __future__ import annotations

import pytest

from jan_serve import __version__
from jan_serve.cluster.cluster_file import Replicas
from jan_serve.cluster.machines import Machine, Versions, capacity, differences, versions_here

DESKTOP = Machine("a", "10.0.0.2", True, 16, 1)
RACK = Machine("b", "10.0.0.3", True, 64, 4)
DEAD = Machine("c", "10.0.0.4", False, 64, 4)


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


def test_equal_machines_have_no_difference() -> None:
    here = versions_here("2.60.0")
    assert here.jan_serve == __version__
    assert differences(here, [("10.0.0.2", versions_here("2.60.0"))]) == []


def test_each_other_machine_is_named_with_what_it_has() -> None:
    here = Versions("3.11.7", "2.60.0", "1.0")
    others = [
        ("10.0.0.2", Versions("3.11.7", "2.60.0", "0.9")),
        ("10.0.0.3", Versions("3.11.8", "2.60.0", "1.0")),
        ("10.0.0.4", here),
    ]
    older, other_python = differences(here, others)
    assert older.startswith("10.0.0.2 has Python 3.11.7, Ray 2.60.0, jan-serve 0.9")
    assert "this machine has Python 3.11.7, Ray 2.60.0, jan-serve 1.0" in older
    assert other_python.startswith("10.0.0.3 has Python 3.11.8")
