"""What happens to the server meanwhile: each fault begins, lasts a moment, and is undone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from tests.chaos.questions import EMBEDDER, SEER, WRITER
from tests.chaos.world import World, limited

Fault = Callable[[World, random.Random], AbstractAsyncContextManager[str]]
"""In the block the fault is there; its value says what was done."""

_END_S: Final = 30.0
_GONE: Final = (ProcessLookupError, PermissionError, psutil.NoSuchProcess)
"""What a limit of a process that has ended raises; PermissionError if nobody reaped it yet."""
_CRASHES: Final = (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
_HEADROOM: Final = 2 << 20
_LIVE: Final = '[models."{name}"]\naliases = ["other-{name}"]\n'
_RELOADS: Final = '[models."{name}"]\nn_batch = {value}\n'
_BROKEN: Final = "[models.\nthis = is not TOML"


def _picked(processes: list[psutil.Process], draws: random.Random) -> psutil.Process | None:
    return draws.choice(sorted(processes, key=lambda each: each.pid)) if processes else None


def _signal(process: psutil.Process | None, number: signal.Signals) -> str:
    if process is None:
        return "nobody was there"
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)
        return f"{number.name} for {process.pid}"
    return "it had ended"


def killed(find: Callable[[World], list[psutil.Process]]) -> Fault:
    """One of these processes dies."""

    @asynccontextmanager
    async def fault(world: World, draws: random.Random) -> AsyncGenerator[str]:
        yield _signal(_picked(find(world), draws), draws.choice(_CRASHES))

    return fault


def stopped(find: Callable[[World], list[psutil.Process]]) -> Fault:
    """One of these processes gets no time."""

    @asynccontextmanager
    async def fault(world: World, draws: random.Random) -> AsyncGenerator[str]:
        process = _picked(find(world), draws)
        try:
            yield _signal(process, signal.SIGSTOP)
        finally:
            _signal(process, signal.SIGCONT)

    return fault


def starved(find: Callable[[World], list[psutil.Process]]) -> Fault:
    """One of these processes gets hardly any more memory."""

    @asynccontextmanager
    async def fault(world: World, draws: random.Random) -> AsyncGenerator[str]:
        process = _picked(find(world), draws)
        if process is None:
            yield "nobody was there"
            return
        try:
            size = process.memory_info().vms + _HEADROOM
            before = limited(process, resource.RLIMIT_AS, size)
        except _GONE:
            yield "it had ended"
            return
        try:
            yield f"{process.pid} has {size >> 20} MiB"
        finally:
            with contextlib.suppress(*_GONE):
                resource.prlimit(process.pid, resource.RLIMIT_AS, before)

    return fault


@asynccontextmanager
async def server_paused(world: World, draws: random.Random) -> AsyncGenerator[str]:
    """The front stops for a moment, as on a machine that is suspended."""
    start = time.monotonic()
    world.signal(signal.SIGSTOP)
    try:
        yield "SIGSTOP"
    finally:
        world.signal(signal.SIGCONT)
        world.pauses.append((start, time.monotonic()))


def file_changed(change: Callable[[World, Path], None]) -> Fault:
    """A model's file changes under the server, and is then put back."""

    @asynccontextmanager
    async def fault(world: World, draws: random.Random) -> AsyncGenerator[str]:
        file = draws.choice(world.model_files())
        start = time.monotonic()
        change(world, file)
        try:
            yield file.name
        finally:
            world.restore(file)
            window = (start, time.monotonic())
            world.damages.append((window, file.name))
            if change is _remove:
                world.removals.append((window, file.name))

    return fault


def _truncate(world: World, file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _scramble(world: World, file: Path) -> None:
    """Another file under the same name, by a rename: those who have the old one open keep it."""
    other = world.folder / "scrambled"
    other.write_bytes(b"GGUF" + os.urandom(4096))
    other.replace(file)


def _remove(world: World, file: Path) -> None:
    file.unlink()


@asynccontextmanager
async def disk_full(world: World, draws: random.Random) -> AsyncGenerator[str]:
    """No byte more on the disk of the data folder; without a file system of ours: no file grows above a few bytes."""
    if world.is_mounted:
        filler = world.disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        try:
            yield "the file system is full"
        finally:
            filler.unlink()
        return
    before: dict[int, tuple[int, int]] = {}
    for process in [world.process, *world.workers()]:
        with contextlib.suppress(*_GONE):
            before[process.pid] = limited(process, resource.RLIMIT_FSIZE, 4096)
    try:
        yield "no file may grow"
    finally:
        for pid, limits in before.items():
            with contextlib.suppress(*_GONE):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)


@asynccontextmanager
async def descriptors_gone(world: World, draws: random.Random) -> AsyncGenerator[str]:
    """The front can open a few more files and connections, or none."""
    start, limit = time.monotonic(), world.process.num_fds() + draws.randrange(4)
    before = limited(world.process, resource.RLIMIT_NOFILE, limit)
    try:
        yield f"{limit} descriptors"
    finally:
        resource.prlimit(world.process.pid, resource.RLIMIT_NOFILE, before)
        world.shortages.append((start, time.monotonic()))


@asynccontextmanager
async def settings_changed(world: World, draws: random.Random) -> AsyncGenerator[str]:
    """The configuration file gets another table, one that reloads a model, or nonsense."""
    name = draws.choice((WRITER, EMBEDDER, SEER))
    value = draws.choice((256, 512, 1024))
    added = draws.choice((_LIVE, _RELOADS, _BROKEN)).format(name=name, value=value)
    world.config.write_text(world.settings + added, encoding="utf-8")
    try:
        yield repr(added[:60])
    finally:
        world.config.write_text(world.settings, encoding="utf-8")


@asynccontextmanager
async def clock_jumps(world: World, draws: random.Random) -> AsyncGenerator[str]:
    """Years ahead, hours back."""
    seconds = draws.choice((-7200, -60, 3600, 86400 * 400))
    world.set_clock(seconds)
    try:
        yield f"{seconds:+} s"
    finally:
        world.set_clock(0)


def ended_by(number: signal.Signals, *, in_order: bool) -> Fault:
    """The server ends by a signal and is started again. in_order: it drains, and nobody is cut off."""

    @asynccontextmanager
    async def fault(world: World, draws: random.Random) -> AsyncGenerator[str]:
        start = time.monotonic()
        world.signal(number)
        status = await asyncio.to_thread(world.wait, _END_S)
        if in_order and status != 0:
            world.wrong.append(f"{number.name} ended the server with status {status}")
        # What the killed server left behind ends by itself.
        await asyncio.to_thread(world.end_of_orphans, _END_S)
        world.start()
        yield f"{number.name}, status {status}"
        async with asyncio.timeout(_END_S):
            await world.answers()
        window = (start, time.monotonic())
        (world.restarts if in_order else world.kills).append(window)

    return fault


def _every_worker(world: World) -> list[psutil.Process]:
    return world.workers()


def _renderers(world: World) -> list[psutil.Process]:
    return world.helpers("render")


def _decoders(world: World) -> list[psutil.Process]:
    return world.helpers("media")


def _compilers(world: World) -> list[psutil.Process]:
    return world.helpers("compile")


def _all_helpers(world: World) -> list[psutil.Process]:
    return _renderers(world) + _decoders(world) + _compilers(world)


@dataclass(frozen=True, slots=True)
class Entry:
    """A fault by name, and the longest time it lasts, in seconds."""

    name: str
    fault: Fault
    longest_s: float


FAULTS: Final = (
    Entry("a worker is killed", killed(_every_worker), 1.0),
    Entry("a renderer is killed", killed(_renderers), 0.5),
    Entry("a decoder is killed", killed(_decoders), 0.5),
    Entry("a compiler is killed", killed(_compilers), 0.5),
    Entry("a worker is stopped", stopped(_every_worker), 4.0),
    Entry("a helper is stopped", stopped(_all_helpers), 3.0),
    Entry("the server is stopped", server_paused, 2.0),
    Entry("a worker has no memory", starved(_every_worker), 2.0),
    Entry("a helper has no memory", starved(_all_helpers), 2.0),
    Entry("a model is truncated", file_changed(_truncate), 2.0),
    Entry("a model is replaced", file_changed(_scramble), 2.0),
    Entry("a model is removed", file_changed(_remove), 2.0),
    Entry("the disk is full", disk_full, 3.0),
    Entry("no descriptors", descriptors_gone, 2.0),
    Entry("the settings change", settings_changed, 3.0),
    Entry("the clock jumps", clock_jumps, 2.0),
    Entry("SIGTERM", ended_by(signal.SIGTERM, in_order=True), 0.0),
    Entry("SIGHUP", ended_by(signal.SIGHUP, in_order=True), 0.0),
    Entry("SIGKILL", ended_by(signal.SIGKILL, in_order=False), 0.0),
)
