"""Real `jan-serve rpc-server` processes: devices with limited memory on this machine."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Generator
from typing import Any

import psutil

from tests.support.deadline import deadline


class Lender:
    """A running server. endpoint: HOST:PORT."""

    def __init__(self, process: subprocess.Popen[str], endpoint: str) -> None:
        self.process = process
        self.endpoint = endpoint

    def processes(self) -> list[psutil.Process]:
        """Processes of its clients, and idle ones."""
        return psutil.Process(self.process.pid).children()

    def kill(self) -> None:
        """As a machine that fails: nothing says goodbye."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def lending(memory: int, *words: str) -> Generator[Lender]:
    """A server that lends so many bytes of main memory."""
    command = [sys.executable, "-P", "-m", "jan_serve", "rpc-server", "--port", "0", "--device", "CPU"]
    command += ["--memory", str(memory), "--threads", "1", "--json", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        with deadline(process):
            facts: dict[str, Any] = json.loads(process.stdout.readline())
        yield Lender(process, facts["endpoint"])
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()
