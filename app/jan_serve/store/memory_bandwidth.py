"""Measures how fast this machine reads its main memory, which bounds how fast a model on the CPU writes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

_BLOCK_BYTES: Final = 64 << 20
_MAX_READERS: Final = 8
_RUNS: Final = 3


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def memory_bandwidth() -> float:
    """Bytes a second that all cores read together, of 64 MiB for each. Blocks for a moment, the first time."""
    import numpy as np

    blocks = [np.ones(_BLOCK_BYTES // 4, np.float32) for _ in range(min(usable_cores(), _MAX_READERS))]

    def rates(pool: ThreadPoolExecutor) -> Iterator[float]:
        for _ in range(_RUNS):
            began = time.perf_counter()
            for block in [pool.submit(np.max, block) for block in blocks]:
                block.result()
            yield sum(block.nbytes for block in blocks) / (time.perf_counter() - began)

    with ThreadPoolExecutor(len(blocks)) as pool:
        return max(rates(pool))
