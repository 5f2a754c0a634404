"""The threads that compute a model, by its size and this machine."""

from __future__ import annotations

import os

import psutil
import pytest

from jan_serve.engine.llama.threads import default_threads


def test_a_tiny_model_gets_one_thread_and_others_the_physical_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def cpu_count(*, logical: bool) -> int:
        return 8 if logical else 4

    def affinity(_pid: int) -> set[int]:
        return {0, 1, 2}

    monkeypatch.setattr(psutil, "cpu_count", cpu_count)
    monkeypatch.setattr(os, "sched_getaffinity", affinity, raising=False)
    assert default_threads(16 * 2**20 - 1) == 1
    assert default_threads(16 * 2**20) == 3
