"""Several processes that train one model: each computes a part of a step, and all of them take the same step.

One thread each: at this size two threads in one matrix product wait for each other longer than they compute.
"""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import ctypes.util
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, distributed, multiprocessing


@dataclass(frozen=True)
class Processes:
    """This process among those that train together."""

    rank: int = 0
    count: int = 1

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Set each tensor to its sum over all processes, to the same bits in each. Blocks until all have called."""
        if self.count == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        distributed.all_reduce(flat)
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(part.view_as(tensor))

    def mean_(self, tensors: Sequence[Tensor]) -> None:
        """Set each tensor to its mean over all processes, as :meth:`sum_` does."""
        self.sum_(tensors)
        for tensor in tensors:
            tensor.div_(self.count)

    def total(self, number: float) -> float:
        """The sum of a number over all processes. Blocks until all have called."""
        tensor = torch.tensor([number], dtype=torch.float64)
        self.sum_([tensor])
        return float(tensor.item())


ALONE = Processes()


def run_together(count: int, work: Callable[[Processes], None]) -> None:
    """Run picklable ``work`` in ``count`` processes that reach each other by loopback; blocks until all have ended.

    Raises what the first failed one raised (as text), and ends the others.
    """
    _choose_allocator()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_join, (count, Path(folder) / "meeting", work), nprocs=count)


def _choose_allocator() -> None:
    """Have processes that are started from now on use jemalloc, where Linux has it installed.

    In the heap of glibc thousands of freed tensors of all sizes are searched at each allocation, and steps take a third
    longer; giving memory back to the system would cost more in page faults.
    """
    if sys.platform != "linux":
        return
    library = ctypes.util.find_library("jemalloc")
    if library is None:
        print("jemalloc (Debian: libjemalloc2) is not installed: steps take about a third longer", flush=True)
        return
    os.environ["LD_PRELOAD"] = ":".join(filter(None, (os.environ.get("LD_PRELOAD"), library)))
    os.environ.setdefault("MALLOC_CONF", "dirty_decay_ms:3000,muzzy_decay_ms:3000,oversize_threshold:0")


def _join(rank: int, count: int, meeting: Path, work: Callable[[Processes], None]) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(
        True
    )  # sharp attention has many numbers that are nearly zero, and each costs a trap
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group("gloo", init_method=meeting.as_uri(), rank=rank, world_size=count)
    try:
        work(Processes(rank, count))
        distributed.barrier()  # who leaves while another still uses the connection aborts that one
    finally:
        distributed.destroy_process_group()
