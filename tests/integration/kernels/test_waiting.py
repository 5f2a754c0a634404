"""Threads of a model that have fewer cores than they are do not burn the time of each other."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from models.recipe.fixtures import write_tiny_llama
from tests.support.engine.worker import running_worker

pytestmark = pytest.mark.integration


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system gives a program no chosen core")
def test_two_threads_on_one_core_take_the_time_of_one(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_tiny_llama(path, n_ctx=4096)
    usable = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usable)})
    try:
        one, two = (_seconds(path, threads) for threads in (1, 2))
    finally:
        os.sched_setaffinity(0, usable)
    assert two < 10 * one


def _seconds(path: Path, threads: int) -> float:
    """Processor time of an answer of 1,000 tokens."""
    with running_worker(path, threads=threads, n_ctx=4096) as worker:
        worker.run_one("a", max_tokens=4, ignore_eos=True)
        process = psutil.Process(worker.process.pid)
        before = process.cpu_times()
        worker.run_one("b", max_tokens=1000, ignore_eos=True)
        after = process.cpu_times()
    return after.user + after.system - before.user - before.system
