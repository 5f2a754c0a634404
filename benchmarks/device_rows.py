"""A row for a model that is spread over devices. Every machine has some: its main memory, lent over loopback (RPC)."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.figures import Figures, Skipped
from benchmarks.load import Job, burst, words
from benchmarks.servers import Running, ours, started

_DEVICES = 2
_N_CTX = 1024
_ROOM_BYTES = 256 << 20
"""Room on each device for the context and to compute in, beside its part of the weights."""


def placement(server: Running, seed: int) -> Figures:
    """One client of a model on two lent devices, of which neither holds all; greedy.

    `ratio`: the time between tokens over that of the same server on the CPU. `off_plan`: the largest difference of what
    llama.cpp allocated on a device from the plan, as a share. `devices`: with parts of the model.
    """
    model = _model_of(server)
    memory = int(model.stat().st_size * 0.7)
    memory += min(_ROOM_BYTES, 4 * memory)
    with contextlib.ExitStack() as stack:
        lenders = [stack.enter_context(_lending(memory)) for _ in range(_DEVICES)]
        split = ",".join("1" for _ in lenders)
        flags = f"--n-ctx {_N_CTX} --parallel 1 --n-gpu-layers all --tensor-split {split} --rpc {','.join(lenders)}"
        devices = stack.enter_context(started(ours(flags), model))
        plain = stack.enter_context(started(ours(f"--n-ctx {_N_CTX} --parallel 1 --device cpu"), model))
        spread, alone = (_between_ms(each, seed) for each in (devices, plain))
        parts = [part for part in _parts(devices) if part["kind"] == "rpc"]
    if not parts:
        raise RuntimeError("the server put nothing on the lent devices")
    planned = [part["weights"] + part["cache"] + part["compute"] for part in parts]
    return {
        "between_ms": spread,
        "ratio": spread / alone,
        "off_plan": max(
            abs(part["allocated"] - plan) / plan for part, plan in zip(parts, planned, strict=True)
        ),
        "devices": float(len(parts)),
    }


def _model_of(server: Running) -> Path:
    words_of = server.process.cmdline() if server.process is not None else []
    if "jan_serve" not in words_of:
        raise Skipped("it measures this checkout's server only")
    return Path(words_of[words_of.index("--model") + 1])


@contextlib.contextmanager
def _lending(memory: int) -> Iterator[str]:
    """HOST:PORT of so many bytes of main memory. Raises Skipped if llama.cpp is built without RPC."""
    command = [sys.executable, "-m", "jan_serve", "rpc-server", "--port", "0", "--device", "CPU"]
    command += ["--memory", str(memory), "--threads", "1", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            _, error = process.communicate()
            raise Skipped(f"rpc-server does not start: {error.strip()[-200:]}")
        yield json.loads(line)["endpoint"]
    finally:
        process.terminate()
        process.communicate()


def _between_ms(server: Running, seed: int) -> float:
    burst(server.base, [Job(words(seed + 999, 5), 8)])
    return burst(server.base, [Job(words(seed, 20), 64)]).between_ms


def _parts(server: Running) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{server.base}/models", timeout=30.0) as response:
        models: list[dict[str, Any]] = json.load(response)["data"]
    return [part for model in models if model["placement"] for part in model["placement"]["parts"]]
