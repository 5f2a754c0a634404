"""Lost accelerators, and Retry-After of a full queue."""

from __future__ import annotations

import pytest

from jan_serve.core.models.model_facts import DeviceInfo
from jan_serve.core.models.model_source import ModelSource
from jan_serve.supervisor.limits import RestartLimits
from jan_serve.supervisor.models.model_history import ModelHistory
from tests.support.fake_client import fake_facts


def device(name: str, kind: str) -> DeviceInfo:
    """A device as a worker finds it."""
    return DeviceInfo(name=name, description="", kind=kind, free_bytes=1, total_bytes=1)


SOURCE = ModelSource(name="m", path="m.gguf", revision=(1, 1))
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
def test_accelerators_that_a_later_load_does_not_find_are_lost(
    loads: list[list[DeviceInfo]], lost: tuple[str, ...]
) -> None:
    history = ModelHistory(SOURCE, RestartLimits())
    for devices in loads:
        history.loaded(fake_facts(devices=tuple(devices)))
    assert history.lost_devices == lost
    assert history.loads_total == len(loads)


@pytest.mark.parametrize(
    ("waiting", "parallel", "mean_s", "expected"),
    [(1, 1, 0.01, 1.0), (10, 1, 2.0, 20.0), (10, 4, 2.0, 5.0), (1000, 1, 5.0, 60.0), (0, 0, 1.0, 1.0)],
)
def test_retry_after_is_the_time_the_queue_needs(
    waiting: int, parallel: int, mean_s: float, expected: float
) -> None:
    history = ModelHistory(SOURCE, RestartLimits())
    history.loaded(fake_facts(parallel=parallel))
    for _ in range(200):  # until the moving mean has converged
        history.served(mean_s)
    assert history.retry_after_s(waiting) == pytest.approx(expected)
