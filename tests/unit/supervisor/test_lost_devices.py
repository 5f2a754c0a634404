"""Row 38: an accelerator that is gone after a sleep is told of; a model that never had one is as it should be."""

from __future__ import annotations

import pytest

from jan_serve.core.model_facts import DeviceInfo
from jan_serve.supervisor.limits import RestartLimits
from jan_serve.supervisor.models.model_history import ModelHistory
from jan_serve.supervisor.models.model_source import ModelSource
from tests.support.fake_client import fake_facts


def device(name: str, kind: str) -> DeviceInfo:
    """A device as a worker finds it."""
    return DeviceInfo(name=name, description="", kind=kind, free_bytes=1, total_bytes=1)


CPU, GPU, OTHER = device("CPU", "cpu"), device("CUDA0", "gpu"), device("Vulkan0", "igpu")


@pytest.mark.parametrize(
    ("loads", "lost"),
    [
        ([[CPU]], ()),
        ([[CPU, GPU]], ()),
        ([[CPU, GPU], [CPU]], ("CUDA0",)),
        ([[CPU, GPU], [CPU], [CPU, GPU]], ()),
        ([[CPU, OTHER, GPU], [CPU], [CPU]], ("CUDA0", "Vulkan0")),
        ([[CPU], [CPU, GPU]], ()),
        ([[CPU, device("BLAS", "accel")], [CPU]], ()),
    ],
)
def test_devices_over_several_loads(loads: list[list[DeviceInfo]], lost: tuple[str, ...]) -> None:
    source = ModelSource(name="m", path="m.gguf", revision=(1, 1))
    record = ModelHistory(source, RestartLimits())
    for devices in loads:
        record.loaded(fake_facts(devices=tuple(devices)))
    assert record.lost_devices == lost
    assert record.loads_total == len(loads)
