"""`python -m tests.chaos.soak [--minutes M] [--seed N] [--load SHARE] [--svg FILE]`: a steady load while models change.

One model stays, the three others share one place. Requests arrive at random at a share of what the server can do, which
is measured first. Prints what grows and what does not; the exit status is 1 if a bound is broken. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from benchmarks import plot
from tests.chaos.client import End, Manner, Outcome, ask
from tests.chaos.questions import QUESTIONS, WRITER, Question
from tests.chaos.run import undisturbed
from tests.chaos.world import World, world

_SETTINGS: Final = f'max_models = 2\nresponse_store_bytes = 0\n[models."{WRITER}"]\npin = true\n'
_DISK_MIB: Final = 8
_SHARE_OF_OTHERS: Final = 0.05
"""Share of the requests that go to other models: each of them may cost a load."""
_CALIBRATION_S: Final = 15.0
_CALIBRATION_CLIENTS: Final = 6
_SAMPLES: Final = 60
_WARM: Final = 0.1
"""Share of the time after which growth counts: until then pools and caches fill."""
_FRONT_MIB, _WORKER_SHARE, _THREADS, _DESCRIPTORS = 2.0, 0.01, 4, 6
_LATENCY_FACTOR: Final = 1.25


@dataclass(frozen=True, slots=True)
class Sample:
    """The server, seconds after the start of the load. Memory and disk in MiB; worker: of the model that stays."""

    at_s: float
    front: float
    worker: float
    descriptors: int
    threads: int
    children: int
    disk: float


def _sampled(at: World, start: float, pid: int) -> Sample:
    front = at.process
    files = [Path(place) / name for place, _, names in os.walk(at.data) for name in names]
    disk = 0
    for file in files:
        with contextlib.suppress(FileNotFoundError):
            disk += file.stat().st_size if "logs" not in file.parts else 0
    return Sample(
        at_s=time.monotonic() - start,
        front=front.memory_info().rss / 2**20,
        worker=psutil.Process(pid).memory_info().rss / 2**20,
        descriptors=front.num_fds(),
        threads=front.num_threads(),
        children=len(at.children()),
        disk=disk / 2**20,
    )


def _drawn(draws: random.Random, asked: Sequence[Question], others: Sequence[Question]) -> Question:
    return draws.choice(others if draws.random() < _SHARE_OF_OTHERS else asked)


async def _rate(
    at: World, draws: random.Random, asked: Sequence[Question], others: Sequence[Question]
) -> float:
    """Requests a second that the server answers to clients that always have one open."""
    end = time.monotonic() + _CALIBRATION_S
    done = 0

    async def client() -> None:
        nonlocal done
        while time.monotonic() < end:
            await ask(at.port, _drawn(draws, asked, others), Manner.READS, draws, [])
            done += 1

    await asyncio.gather(*(client() for _ in range(_CALIBRATION_CLIENTS)))
    return done / _CALIBRATION_S


async def soak(
    folder: Path, minutes: float, seed: int, share: float
) -> tuple[list[Sample], list[Outcome], float]:
    """Samples, outcomes, and the rate of requests a second. share: of the rate that it can do."""
    draws = random.Random(seed)
    asked = [question for question in QUESTIONS if question.model == WRITER]
    others = [question for question in QUESTIONS if question.model != WRITER]
    outcomes: list[Outcome] = []
    samples: list[Sample] = []
    with world(folder, settings=_SETTINGS) as at:
        at.start()
        await asyncio.wait_for(at.answers(), 60)
        golden = await undisturbed(at)
        rate = share * await _rate(at, draws, asked, others)
        worker = max(at.workers(), key=lambda process: process.memory_info().rss).pid

        async def one(question: Question) -> None:
            got = await ask(at.port, question, Manner.READS, random.Random(0), [])
            assert got.kind is not End.ANSWER or got.text == golden[question.key], got
            outcomes.append(got)

        start, next_sample = time.monotonic(), 0.0
        async with asyncio.TaskGroup() as group:
            while (now := time.monotonic() - start) < minutes * 60:
                if now >= next_sample:
                    samples.append(_sampled(at, start, worker))
                    next_sample += minutes * 60 / _SAMPLES
                group.create_task(one(_drawn(draws, asked, others)))
                await asyncio.sleep(draws.expovariate(rate))
        samples.append(_sampled(at, start, worker))
    return samples, outcomes, rate


def _latency(outcomes: Sequence[Outcome], begin: float, end: float) -> list[float]:
    """Seconds of the requests to the model that stays, as far as they began in this share of the time, in order."""
    whole = sorted(outcomes, key=lambda outcome: outcome.start)
    part = whole[int(len(whole) * begin) : int(len(whole) * end)]
    return sorted(outcome.end - outcome.start for outcome in part if outcome.question.model == WRITER)


def report(
    samples: Sequence[Sample], outcomes: Sequence[Outcome], rate: float
) -> tuple[list[str], list[str]]:
    """Lines of figures, and the bounds that are broken."""
    warm = [sample for sample in samples if sample.at_s >= _WARM * samples[-1].at_s]
    first, last = warm[0], warm[-1]
    front, worker = last.front - first.front, last.worker / first.worker - 1
    disk = max(sample.disk for sample in samples)
    early, late = _latency(outcomes, 0.0, 1 / 6), _latency(outcomes, 5 / 6, 1.0)
    failed = [outcome for outcome in outcomes if outcome.kind is not End.ANSWER]
    lines = [
        f"{len(outcomes)} requests in {last.at_s / 60:.1f} min, {rate:.1f} a second; {len(failed)} failed",
        f"front {first.front:.1f} to {last.front:.1f} MiB ({front:+.2f}), worker that stays {first.worker:.1f} to"
        f" {last.worker:.1f} MiB ({worker:+.2%})",
        f"descriptors {first.descriptors} to {last.descriptors}, threads {first.threads} to {last.threads},"
        f" children {first.children} to {last.children}, disk at most {disk:.1f} MiB",
        f"latency, first and last sixth: median {statistics.median(early):.3f} and {statistics.median(late):.3f} s,"
        f" p95 {early[int(len(early) * 0.95)]:.3f} and {late[int(len(late) * 0.95)]:.3f} s",
    ]
    reasons = Counter(f"{outcome.kind} {outcome.status} {outcome.detail[:90]}" for outcome in failed)
    lines += [f"  {count:5} {reason}" for reason, count in reasons.most_common(10)]
    broken = [
        text
        for text, holds in (
            ("requests failed", not failed),
            ("the front grew", front <= _FRONT_MIB),
            ("the worker grew", worker <= _WORKER_SHARE),
            ("descriptors were left", last.descriptors <= first.descriptors + _DESCRIPTORS),
            ("threads were left", last.threads <= first.threads + _THREADS),
            # Each of the four models has its own folder and its own budget.
            ("the cache on disk is over its budget", disk <= 4 * _DISK_MIB + 1),
            ("it became slower", statistics.median(late) <= _LATENCY_FACTOR * statistics.median(early)),
        )
        if not holds
    ]
    return lines, broken


def write_graph(path: Path, samples: Sequence[Sample]) -> None:
    """Memory, descriptors and disk over the time in minutes."""
    spread = samples[:: max(1, len(samples) // 12)]
    places = [round(sample.at_s) for sample in spread]

    def line(values: Sequence[float]) -> dict[int, float]:
        return dict(zip(places, values, strict=True))

    panels = (
        ("resident memory of front and worker, MiB, by seconds", ("front", "worker")),
        ("descriptors and threads of the front, by seconds", ("descriptors", "threads")),
        ("prefix cache on disk, MiB, by seconds", ("disk",)),
    )
    parts: list[str] = []
    top = 40
    for title, names in panels:
        lines = {name: line([float(getattr(sample, name)) for sample in spread]) for name in names}
        parts.append(plot.panel(top, title, places, lines))
        top += plot.PANEL
    path.write_text(
        plot.page(["front, descriptors, disk", "worker, threads"], top, "".join(parts)), encoding="utf-8"
    )


def main() -> int:
    command = argparse.ArgumentParser(prog="python -m tests.chaos.soak")
    command.add_argument("--minutes", type=float, default=60.0)
    command.add_argument("--seed", type=int, default=1)
    command.add_argument("--load", type=float, default=0.7, help="share of what the server can do")
    command.add_argument("--svg", type=Path, help="write a graph")
    options = command.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        samples, outcomes, rate = asyncio.run(
            soak(Path(folder) / "run", options.minutes, options.seed, options.load)
        )
    lines, broken = report(samples, outcomes, rate)
    print(*lines, *(f"BROKEN: {text}" for text in broken), sep="\n")
    if options.svg is not None:
        write_graph(options.svg, samples)
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
