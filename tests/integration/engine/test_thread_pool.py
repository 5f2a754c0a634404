"""Threads persist between graphs: as many as configured, shared by an engine's contexts, and gone with the last one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from jan_serve.engine.llama import backend
from jan_serve.engine.llama.context import DECODE_OK, Batch, Floats, LlamaContext
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.engine.llama.threads import ThreadPool
from tests.support.processes import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def model(tiny_llama: Path) -> Iterator[LlamaModel]:
    backend.start()
    opened = LlamaModel(str(tiny_llama))
    yield opened
    opened.close()


def context_of(model: LlamaModel, threads: ThreadPool) -> LlamaContext:
    return LlamaContext(model, n_ctx=256, n_batch=64, n_ubatch=64, n_seq_max=1, threads=threads)


def logits_of(context: LlamaContext, steps: int = 2) -> list[Floats]:
    """A prompt and some steps after it."""
    batch = Batch(64)
    found: list[Floats] = []
    pos = 0
    for count in [40] + [1] * steps:
        batch.clear()
        index = batch.add(np.arange(300 + pos, 300 + pos + count, dtype=np.int32), pos, 0, outputs="last")
        assert context.decode(batch) == DECODE_OK
        found.append(context.logits(index).copy())
        pos += count
    return found


@pytest.mark.parametrize("count", [2])
def test_results_do_not_depend_on_the_pool(model: LlamaModel, count: int) -> None:
    alone = context_of(model, ThreadPool(1))
    together = context_of(model, ThreadPool(count))
    for expected, found in zip(logits_of(alone), logits_of(together), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    alone.close()
    together.close()


def test_contexts_share_threads_that_go_with_the_last_of_them(model: LlamaModel) -> None:
    if "OPENMP = 1" in backend.build_features()["system_info"]:
        pytest.skip("OpenMP has threads of its own")
    process = psutil.Process()
    gc.collect()
    before = {thread.id for thread in process.threads()}

    def own() -> int:
        """Threads that others did not start: those of earlier tests may end meanwhile."""
        return len({thread.id for thread in process.threads()} - before)

    threads = ThreadPool(3)
    first, second = context_of(model, threads), context_of(model, threads)
    del threads
    expected = logits_of(first)
    for _ in range(2):
        second.clear()
        np.testing.assert_array_equal(logits_of(second), expected)
        assert own() == 2
    first.close()
    del first
    second.close()
    del second
    gc.collect()
    wait_until(lambda: own() == 0)  # a thread that was joined is still listed for a moment
