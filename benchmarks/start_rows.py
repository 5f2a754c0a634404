"""What one waits for before the first answer, and what the server costs while nobody asks."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.figures import Figures, Skipped
from benchmarks.load import Job, burst, words
from benchmarks.servers import Command, Running, fresh_environment, started

_PROGRAM = (sys.executable, "-m", "jan_serve")
_TIMES = 5
_SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_HELD = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": _SCHEMA}}}
_PROMPT = re.compile(rb">>> ?")
_PROMPT_LIMIT_S = 60.0
_SETTLED_S = 75.0
"""Seconds without a model after which only the front is left."""
_WATCHED_S = 60.0


def version(server: Running, seed: int) -> Figures:
    return _command(server, "--version")


def help_text(server: Running, seed: int) -> Figures:
    return _command(server, "--help")


def _command(server: Running, flag: str) -> Figures:
    """Seconds of a command, and the modules that it imports: a count without noise."""
    _only_ours(server)
    times: list[float] = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        subprocess.run([*_PROGRAM, flag], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - began)
    command = [_PROGRAM[0], "-X", "importtime", *_PROGRAM[1:], flag]
    imports = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True).stderr
    return {"wall_s": statistics.median(times), "modules": float(imports.count(b"\n") - 1)}


def run_prompt(server: Running, seed: int) -> Figures:
    """`jan-serve run` in a terminal, without a server that runs: seconds to its prompt."""
    _only_ours(server)
    if sys.platform == "win32":
        raise Skipped("Windows has no pseudo-terminals of this kind")
    import pty

    with tempfile.TemporaryDirectory() as folder:
        environment = fresh_environment(folder) | {"TERM": "xterm"}
        environment.pop("JAN_SERVE_URL", None)
        began = time.perf_counter()
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(_PROGRAM[0], [*_PROGRAM, "run", "--url", ""], environment)
        try:
            _read_until(terminal, _PROMPT, began)
            return {"prompt_s": time.perf_counter() - began}
        finally:
            os.write(terminal, b"\x04")
            _drain(terminal)
            os.waitpid(pid, 0)


def _read_until(terminal: int, mark: re.Pattern[bytes], began: float) -> None:
    seen = b""
    while not mark.search(seen):
        if time.perf_counter() - began > _PROMPT_LIMIT_S:
            raise RuntimeError(f"no prompt: {seen[-500:]!r}")
        seen += os.read(terminal, 65536)
        if b"\x1b[6n" in seen:  # it asks for the position of the cursor
            os.write(terminal, b"\x1b[1;1R")
            seen = seen.replace(b"\x1b[6n", b"")


def _drain(terminal: int) -> None:
    """Read until the program has closed its terminal."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # Linux reports the end so
        pass


def first_constrained(server: Running, seed: int) -> Figures:
    """The first schema after a load and a rest, beside the same request without one."""
    _only_ours(server)
    if server.restart is None:
        raise Skipped("it needs a server that it can restart")
    server.restart()
    burst(server.base, [Job(words(seed, 5), 2)])
    _until_idle(server)
    free_ms = burst(server.base, [Job(words(seed + 1, 5), 2)]).first_ms
    first_ms = burst(server.base, [Job(words(seed + 2, 5), 2, _HELD)]).first_ms
    second_ms = burst(server.base, [Job(words(seed + 3, 5), 2, _HELD)]).first_ms
    return {"extra_ms": first_ms - free_ms, "free_ms": free_ms, "first_ms": first_ms, "second_ms": second_ms}


def first_schema(server: Running, seed: int) -> Figures:
    """The very first request of a worker with a schema, beside one without. An earlier worker had schemas too."""
    _only_ours(server)
    if server.restart is None:
        raise Skipped("it needs a server that it can restart")
    burst(server.base, [Job(words(seed, 5), 2, _HELD)])
    _until_idle(server)
    first_ms: list[float] = []
    for extra in ({}, _HELD):
        server.restart()
        first_ms.append(burst(server.base, [Job(words(seed + 1, 5), 2, extra)]).first_ms)
    free_ms, held_ms = first_ms
    return {"extra_ms": held_ms - free_ms, "free_ms": free_ms, "held_ms": held_ms}


def _until_idle(server: Running) -> None:
    """Until the processes have used no CPU for a second."""
    before = server.cpu_seconds()
    while True:
        time.sleep(1.0)
        now = server.cpu_seconds()
        if now - before < 0.02:
            return
        before = now


def rest(server: Running, seed: int) -> Figures:
    """A server of its own without a model, after a minute: wake-ups a second, memory, bytes written to the disk."""
    _only_ours(server)
    if sys.platform != "linux":
        raise Skipped("the counts are those of Linux")
    command = Command(server.name, f"{' '.join(_PROGRAM)} serve --port {{port}} --ttl-s 1")
    with started(command, Path()) as resting:
        time.sleep(_SETTLED_S)
        assert resting.process is not None
        tree = [resting.process, *resting.process.children(recursive=True)]
        figures = _watched(tree)
        memory = [process.memory_full_info() for process in tree]
    return {
        **figures,
        "rss_mb": sum(each.rss for each in memory) / 1e6,
        "pss_mb": sum(each.pss for each in memory) / 1e6,
        "processes": float(len(tree)),
    }


def loaded_rest(server: Running, seed: int) -> Figures:
    """Figures of `rest`, for the measured server with its model in memory."""
    _only_ours(server)
    if server.process is None or sys.platform != "linux":
        raise Skipped("the counts are those of Linux")
    burst(server.base, [Job(words(seed, 5), 2)])
    _until_idle(server)
    return _watched([server.process, *server.process.children(recursive=True)])


def _watched(tree: Sequence[psutil.Process]) -> Figures:
    before = [(_switches(process.pid), process.io_counters().write_bytes) for process in tree]
    time.sleep(_WATCHED_S)
    after = [(_switches(process.pid), process.io_counters().write_bytes) for process in tree]
    pairs = list(zip(before, after, strict=True))
    return {
        "wakeups_per_s": sum(later[0] - earlier[0] for earlier, later in pairs) / _WATCHED_S,
        "written_bytes": float(sum(later[1] - earlier[1] for earlier, later in pairs)),
    }


def _switches(pid: int) -> int:
    """Voluntary context switches of all threads."""
    statuses = Path(f"/proc/{pid}/task").glob("*/status")
    return sum(
        int(line.split()[1])
        for status in statuses
        for line in status.read_text().splitlines()
        if line.startswith("voluntary")
    )


def _only_ours(server: Running) -> None:
    if server.process is None or server.name != "jan-serve":
        raise Skipped("it measures jan-serve alone")
