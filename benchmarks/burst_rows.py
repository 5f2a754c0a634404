"""Rows for clients that come at once, and for clients that come whenever they like."""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import aiohttp

from benchmarks.figures import Figures
from benchmarks.load import PATIENCE, Job, Outcome, Timing, burst, stream, words
from benchmarks.servers import Running

ANSWER = 64
_LOAD = 0.6
_OPEN_S = 120.0
_SHORTEST, _LONGEST = 100, 1000


@dataclass(slots=True)
class Lane:
    """One client: when it asked, and when each piece of its answer came. Seconds since the start of the row."""

    asked_s: float
    pieces: list[float] = field(default_factory=list[float])

    @property
    def first_s(self) -> float:
        return self.pieces[0] - self.asked_s

    @property
    def between_s(self) -> list[float]:
        return [later - earlier for earlier, later in itertools.pairwise(self.pieces)]


def lanes_of_burst(server: Running, seed: int, clients: int, prompt_tokens: int) -> list[Lane]:
    """Clients that ask at the same instant, each with its own prompt of about so many tokens."""
    per_word = _tokens_per_word(server, seed)
    jobs = [_job(seed * 100 + number, prompt_tokens, per_word) for number in range(clients)]
    return asyncio.run(_lanes(server.base, jobs, [0.0] * clients))


def burst_row(clients: int, prompt_tokens: int) -> Callable[[Running, int], Figures]:
    """A row of `lanes_of_burst`."""

    def run(server: Running, seed: int) -> Figures:
        lanes = lanes_of_burst(server, seed, clients, prompt_tokens)
        return _figures(lanes) | {
            "wall_s": max(lane.pieces[-1] for lane in lanes),
            "end_mean_s": statistics.mean(lane.pieces[-1] - lane.asked_s for lane in lanes),
        }

    return run


def prompt_row(prompt_tokens: int) -> Callable[[Running, int], Figures]:
    """A row of one client with a prompt of about so many tokens that is in no cache; the median of three."""

    def run(server: Running, seed: int) -> Figures:
        per_word = _tokens_per_word(server, seed)
        outcomes = [
            burst(server.base, [replace(_job(seed * 100 + turn, prompt_tokens, per_word), max_tokens=1)])
            for turn in range(3)
        ]
        first_ms = [outcome.first_ms for outcome in outcomes]
        rates = [1e3 * each.timings[0].prompt_tokens / each.first_ms for each in outcomes]
        return {"prompt_tokens_per_s": statistics.median(rates), "first_ms": statistics.median(first_ms)}

    return run


_service_s: list[float] = []
"""Seconds of a mean request alone. The first server of a run decides the rate of arrivals for all."""


def arrivals(server: Running, seed: int) -> Figures:
    """An open loop of 120 s: clients come at random (Poisson), at 60 % of what the machine can do one by one."""
    per_word = _tokens_per_word(server, seed)
    if not _service_s:
        outcome: Outcome = burst(server.base, [_job(seed + 7, (_SHORTEST + _LONGEST) // 2, per_word)])
        _service_s.append(outcome.wall_s)
    rng = random.Random(seed)
    starts: list[float] = []
    while (next_s := (starts[-1] if starts else 0.0) + rng.expovariate(_LOAD / _service_s[0])) < _OPEN_S:
        starts.append(next_s)
    starts = starts or [0.0]
    jobs = [_job(seed * 10_000 + i, rng.randint(_SHORTEST, _LONGEST), per_word) for i in range(len(starts))]
    lanes = asyncio.run(_lanes(server.base, jobs, starts))
    end_s = max(lane.pieces[-1] for lane in lanes)
    return _figures(lanes) | {"clients": float(len(lanes)), "tokens_per_s": ANSWER * len(lanes) / end_s}


def _tokens_per_word(server: Running, seed: int) -> float:
    """Tokens of the server's vocabulary for a word; the request that counts them warms the server up."""
    timing: Timing = burst(server.base, [Job(words(seed + 999, 40), 1)]).timings[0]
    return timing.prompt_tokens / 40


def _job(seed: int, prompt_tokens: int, per_word: float) -> Job:
    return Job(words(seed, max(1, round(prompt_tokens / per_word))), ANSWER, {"ignore_eos": True})


async def _lanes(base: str, jobs: Sequence[Job], starts: Sequence[float]) -> list[Lane]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=PATIENCE) as session:
        began = time.perf_counter()

        async def one(job: Job, start_s: float) -> Lane:
            await asyncio.sleep(max(0.0, began + start_s - time.perf_counter()))
            lane = Lane(time.perf_counter() - began)
            await stream(session, base, job, lambda at, _piece: lane.pieces.append(at - began))
            if not lane.pieces:
                raise RuntimeError(f"{base} sent no text")
            return lane

        return list(await asyncio.gather(*(one(job, at) for job, at in zip(jobs, starts, strict=True))))


def _figures(lanes: Sequence[Lane]) -> Figures:
    """First tokens, and the time between pieces of all clients together."""
    firsts = sorted(lane.first_s for lane in lanes)
    between = sorted(gap for lane in lanes for gap in lane.between_s)
    return {
        "first_p50_s": statistics.median(firsts),
        "first_p95_s": _quantile(firsts, 0.95),
        "first_max_s": firsts[-1],
        "between_p50_ms": 1e3 * _quantile(between, 0.5),
        "between_p95_ms": 1e3 * _quantile(between, 0.95),
        "pause_max_s": between[-1],
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
