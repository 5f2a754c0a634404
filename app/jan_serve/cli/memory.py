"""How much memory a model may use on this machine now: main memory, and what accelerators have of their own."""

from __future__ import annotations

import contextlib
from typing import Any

import psutil

from jan_serve.cli.probe import ProbeFailed, probe_engine
from jan_serve.store.fit import FreeMemory


def free_memory() -> FreeMemory:
    """Asks the system, and llama.cpp about its devices in a process of its own. Blocks for about a second."""
    devices: list[dict[str, Any]] = []
    # Where llama.cpp does not start, `jan-serve doctor` tells; main memory is then what there is to choose by.
    with contextlib.suppress(ProbeFailed):
        devices = probe_engine().get("devices", [])
    # Integrated devices share the main memory: counting theirs would count it twice.
    own = [int(device["free_bytes"]) for device in devices if device.get("kind") == "gpu"]
    return FreeMemory(main=int(psutil.virtual_memory().available), accelerators=own)
