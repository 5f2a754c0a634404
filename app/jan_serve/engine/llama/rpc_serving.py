"""The process behind one client of `jan-serve rpc-server`: lends devices on a port of this machine."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import psutil

from jan_serve.engine.llama import backend, rpc
from jan_serve.engine.llama.threads import default_threads
from jan_serve.errors import SettingsError
from jan_serve.ipc.child_pipe import end_with_parent, write_no_core_dump

_CPU = "CPU"
_LARGE_MODEL = 1 << 40


def main(arguments: list[str]) -> int:
    """Serve until the process is ended. --memory: bytes that all processes of the server lend together."""
    parser = argparse.ArgumentParser(prog="jan-serve worker --rpc-serve")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--device", action="append", default=[])
    parser.add_argument("--memory", type=int)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args(arguments)
    end_with_parent()
    write_no_core_dump()
    backend.start()
    devices = options.device or [device.name for device in backend.accelerators()] or [_CPU]
    if any(name.upper() == _CPU for name in devices):
        rpc.report_memory(_CPU, _memory_of_main(options.memory))
    elif options.memory is not None:
        raise SettingsError(
            "memory: only main memory can be lent in part; leave out --memory, or name --device CPU"
        )
    rpc.serve(options.endpoint, devices, options.threads or default_threads(_LARGE_MODEL))
    return 1


def _memory_of_main(limit: int | None) -> Callable[[], tuple[int, int]]:
    """Measures free and total bytes of main memory, within a limit for this process and its siblings."""
    at_start = psutil.Process().memory_info().rss

    def measure() -> tuple[int, int]:
        memory = psutil.virtual_memory()
        if limit is None:
            return int(memory.available), int(memory.total)
        taken = 0
        parent = psutil.Process().parent()
        for process in parent.children() if parent is not None else [psutil.Process()]:
            try:
                taken += max(0, process.memory_info().rss - at_start)
            except psutil.Error:
                continue  # it has ended
        return max(0, min(limit - taken, int(memory.available))), limit

    return measure
