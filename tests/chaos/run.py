"""One run: a server, its clients and faults, all drawn from one seed; then everything is counted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import statistics
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.chaos import accounts
from tests.chaos.client import End, Manner, Outcome, ask, drawn_manner
from tests.chaos.faults import FAULTS, Entry
from tests.chaos.questions import QUESTIONS, Question, drawn
from tests.chaos.world import World, overlap, world
from tests.support.clients.attacks import asked_for_health

_RECOVERY_S: Final = 150.0
"""The longest cool-down of a model that crashed too often is a minute."""
_QUIET_S: Final = 30.0
_PIPES: Final = 3
"""Descriptors for each child process."""
_SPARE_DESCRIPTORS: Final = 2
_MOST_HELPERS: Final = 6
_GROWTH_MIB: Final = 48


@dataclass(slots=True)
class Report:
    """findings: what must not be."""

    seed: int
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    faults: Counter[str] = field(default_factory=Counter[str])
    findings: list[str] = field(default_factory=list[str])
    health: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Begin and seconds of each /health, outside of the times when no server could answer."""
    figures: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        took = [seconds for _, seconds in self.health]
        slow = statistics.quantiles(took, n=100) if len(took) > 1 else [0.0] * 99
        return "\n".join(
            [
                f"seed {self.seed}: {len(self.outcomes)} requests, {self.faults.total()} faults",
                accounts.counts(self.outcomes),
                f"/health: {len(took)} times, median {slow[49] * 1e3:.0f} ms, p99 {slow[98] * 1e3:.0f} ms",
                *self.figures,
                f"{len(self.findings)} findings",
                *self.findings[:50],
            ]
        )


async def chaos(
    folder: Path,
    seed: int,
    seconds: float,
    clients: int,
    faults: Sequence[Entry] = FAULTS,
    say: Callable[[str], None] = lambda text: None,
    least_faults: int = 0,
) -> Report:
    """Run it. say: takes a line for each fault. clients: at once. least_faults: made though the seconds are over."""
    report = Report(seed)
    with world(folder) as at:
        at.start()
        await asyncio.wait_for(at.answers(), 60)
        golden = await undisturbed(at)
        before = _resources(at)
        with asked_for_health(at.port, 0.05) as asked:
            await _disturbed(
                at, report, clients, _make_faults(at, report, seconds, faults, say, least_faults)
            )
        report.health = [
            (start, took)
            for start, took, _ in asked
            if not overlap([*at.kills, *at.restarts, *at.pauses], start, start + took)
        ]
        report.findings += at.wrong
        report.findings += accounts.findings(report.outcomes, golden, at)
        await _afterwards(at, report, golden, before)
    return report


async def undisturbed(at: World, questions: Sequence[Question] = QUESTIONS) -> dict[str, str]:
    """The undisturbed answers, one after the other."""
    answers: dict[str, str] = {}
    for question in questions:
        got = await ask(at.port, question, Manner.READS, random.Random(0), [])
        assert got.kind is End.ANSWER, got
        answers[question.key] = got.text
    return answers


async def _disturbed(
    at: World, report: Report, clients: int, making_faults: Coroutine[Any, Any, None]
) -> None:
    """Clients and faults at once. Returns when each request has ended."""
    over = asyncio.Event()
    silent: list[socket.socket] = []
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            draws = random.Random(f"{report.seed}-client-{number}")
            group.create_task(_client(at, report, draws, over, silent))
        try:
            await making_faults
        finally:
            over.set()
    for sock in silent:
        sock.close()


async def _client(
    at: World, report: Report, draws: random.Random, over: asyncio.Event, silent: list[socket.socket]
) -> None:
    while not over.is_set():
        got = await ask(at.port, drawn(draws), drawn_manner(draws), draws, silent)
        report.outcomes.append(got)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), draws.uniform(0, 0.4 if got.kind is End.ERROR else 0.2))


async def _make_faults(
    at: World,
    report: Report,
    seconds: float,
    faults: Sequence[Entry],
    say: Callable[[str], None],
    least: int,
) -> None:
    """All of them in an order of the seed, then again in another one, until the time is over and enough were made."""
    draws = random.Random(f"{report.seed}-faults")
    start = time.monotonic()
    while True:
        for entry in draws.sample(faults, len(faults)):
            pause_s, lasts_s = draws.uniform(0, 1.5), draws.uniform(0, entry.longest_s)
            await asyncio.sleep(pause_s)
            if time.monotonic() - start > seconds and report.faults.total() >= least:
                return
            async with entry.fault(at, draws) as what:
                say(f"{time.monotonic() - start:6.1f} s  {entry.name}: {what}, for {lasts_s:.1f} s")
                await asyncio.sleep(lasts_s)
            report.faults[entry.name] += 1
        if not faults:
            await asyncio.sleep(1)
            if time.monotonic() - start > seconds:
                return


async def _afterwards(at: World, report: Report, golden: dict[str, str], before: dict[str, int]) -> None:
    """The server recovers by itself, answers as before, holds no more than before, and leaves nothing."""
    end = time.monotonic() + _RECOVERY_S
    for question in QUESTIONS:
        while True:
            got = await ask(at.port, question, Manner.READS, random.Random(0), [])
            if got.kind is End.ANSWER:
                if got.text != golden[question.key]:
                    report.findings.append(f"afterwards: {question.name}: another answer: {got.text!r}")
                break
            if time.monotonic() > end:
                report.findings.append(f"afterwards: {question.name}: {got.kind} {got.status} {got.detail}")
                break
            await asyncio.sleep(0.5)
    after = await _settled(at, before)
    report.figures.append(
        ", ".join(f"{name} {before[name]} → {after[name]}" for name in before) + " (memory in MiB)"
    )
    if not _is_settled(before, after):
        report.findings.append(f"descriptors are left: {_open_files(at)}")
    if after["memory"] > before["memory"] + _GROWTH_MIB:
        report.findings.append("memory is left")
    if (
        len(at.workers()) > 4
        or len(at.children()) > 4 + _MOST_HELPERS
        or after["threads"] > before["threads"] + 8
    ):
        report.findings.append("processes or threads are left")
    report.findings += accounts.zombies(at)
    at.signal(signal.SIGTERM)
    status = await asyncio.to_thread(at.wait, 40)
    if status != 0:
        report.findings.append(f"the server ended with status {status}")
    await asyncio.to_thread(at.end_of_orphans, 60.0)
    report.findings += accounts.leftovers(at)


def _resources(at: World) -> dict[str, int]:
    """What the server holds now."""
    process = at.process
    return {
        "descriptors": process.num_fds(),
        "threads": process.num_threads(),
        "children": len(at.children()),
        "memory": process.memory_info().rss >> 20,
    }


def _open_files(at: World) -> str:
    """What the server's descriptors are, by kind."""
    kinds: Counter[str] = Counter()
    folder = Path(f"/proc/{at.process.pid}/fd")
    for link in folder.iterdir():
        with contextlib.suppress(OSError):
            kinds[re.sub(r"\d+", "N", os.readlink(link))] += 1
    states = Counter(connection.status for connection in at.process.net_connections("tcp"))
    return f"{dict(kinds)}, sockets {dict(states)}"


async def _settled(at: World, before: dict[str, int]) -> dict[str, int]:
    """As `_resources`, once connections that were left have had their time."""
    end = time.monotonic() + _QUIET_S
    while True:
        now = _resources(at)
        if _is_settled(before, now) or time.monotonic() > end:
            return now
        await asyncio.sleep(0.5)


def _is_settled(before: dict[str, int], now: dict[str, int]) -> bool:
    """Each further helper process has its pipes."""
    more = max(0, now["children"] - before["children"]) * _PIPES + _SPARE_DESCRIPTORS
    return now["descriptors"] <= before["descriptors"] + more
