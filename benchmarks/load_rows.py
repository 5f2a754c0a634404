"""Rows for many streams, long prompts, and both together."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import json
import statistics
import time
from dataclasses import replace

import aiohttp

from benchmarks.figures import CONTEXTS, STREAMS, Figures, Skipped
from benchmarks.load import PATIENCE, Job, Timing, burst, stream, words
from benchmarks.servers import Running

# The text of `repeated`, in words that every model has ordinary tokens for.
_TEXT = (
    "The morning train leaves at seven and the evening one at nine. My brother lives near the old harbour, where they"
    " sell fresh bread, cheese and coffee. He has two dogs, a small boat and a green house with a large door."
)


def repeated(server: Running, seed: int) -> Figures:
    """One client requests a text again with one word changed.

    Weights that are random repeat nothing, so a grammar holds the model to the text. Start the servers with
    ``--no-jump-forward``: otherwise what the grammar forces is not sampled at all.
    """
    changed = _TEXT.replace("green", ("red", "blue", "white", "black")[seed % 4])
    held = {"grammar": f"root ::= {json.dumps(changed)}"}
    job = Job(f"Repeat this with one word changed: {_TEXT}\n", 200, held)
    burst(server.base, [replace(job, max_tokens=1)])
    outcomes = [burst(server.base, [job]) for _ in range(3)]
    if not all(o.between_ms for o in outcomes):
        raise Skipped("all of the text came at once: start the server with --no-jump-forward")
    return {
        "tokens_per_s": statistics.median(1e3 / o.between_ms for o in outcomes),
        "first_ms": statistics.median(o.first_ms for o in outcomes),
        "right": statistics.mean(o.timings[0].text.strip() == changed for o in outcomes),
    }


def free_text(server: Running, seed: int) -> Figures:
    """One client samples a text without repetition, so that every guess of prompt lookup is wrong.

    The peer to compare with is this server with ``--prompt-lookup off``.
    """
    sampled = {"temperature": 1.0, "top_p": 1.0, "seed": seed, "ignore_eos": True}
    burst(server.base, [Job(words(seed + 999, 5), 4, sampled)])
    outcomes = [burst(server.base, [Job(words(seed + i, 20), 96, sampled)]) for i in range(3)]
    return {"tokens_per_s": statistics.median(1e3 / o.between_ms for o in outcomes)}


def own_head(server: Running, seed: int) -> Figures:
    """One client of a model with a head for further tokens (`bench_model --shape mtp`), which knows 7 of 10; greedy.

    The peer to compare with is this server with ``--mtp off``. `steps`: of the engine for each token. `accepted`: share
    of the drafted tokens. Both are absent where the server does not count them.
    """
    greedy = {"temperature": 0.0, "ignore_eos": True}
    burst(server.base, [Job(words(seed + 999, 5), 32, greedy)])
    before = server.counters()
    outcomes = [burst(server.base, [Job(words(seed * 10 + i, 20), 96, greedy)]) for i in range(3)]
    after = server.counters()
    counted = {name: after[name] - value for name, value in before.items() if name in after}
    tokens = sum(timing.tokens for outcome in outcomes for timing in outcome.timings)
    figures = {"tokens_per_s": statistics.median(1e3 / o.between_ms for o in outcomes)}
    if (steps := counted.get("jan_serve_engine_steps_total")) is not None:
        figures["steps"] = steps / tokens
    if drafted := counted.get("jan_serve_engine_model_drafted_tokens_total"):
        figures["accepted"] = counted["jan_serve_engine_model_accepted_tokens_total"] / drafted
    return figures


def streams_32(server: Running, seed: int) -> Figures:
    """Thirty-two clients at once with short prompts. `cpu_ms`: CPU time of the whole server per token."""
    burst(server.base, [Job(words(seed + 999, 5), 4)])
    before = server.cpu_seconds()
    outcome = burst(server.base, [Job(words(seed * 100 + i, 5), 64) for i in range(32)])
    tokens = sum(timing.tokens for timing in outcome.timings)
    return {
        "tokens_per_s": outcome.tokens_per_s,
        "between_ms": outcome.between_ms,
        "cpu_ms": 1e3 * (server.cpu_seconds() - before) / tokens,
    }


def long_prefill(server: Running, seed: int) -> Figures:
    """Two streams run when a prompt of about 6,000 tokens arrives that is in no cache.

    `kept`: the time that two other streams take alone for as much text, over the time that these take until the
    prompt's first token: answers are slower the longer they are. `pause_s`: the longest between two pieces of one
    stream. `health_p99_ms`: of /health in that time.
    """
    return asyncio.run(_long_prefill(server.base, seed))


_BEFORE_S = 4.0
# Twenty probes per second slowed the streams by a tenth: each takes a core from the threads of a step.
_PROBE_S = 0.5


async def _long_prefill(base: str, seed: int) -> Figures:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=PATIENCE) as session:
        streams = [_Written(session, base, seed + number) for number in range(2)]
        await asyncio.sleep(_BEFORE_S)
        start = time.perf_counter()
        health: list[float] = []
        prober = asyncio.create_task(_probe(session, base, health))
        timing = await stream(session, base, Job(words(seed + 6000, 1830), 2))
        end = start + timing.first_s
        prober.cancel()
        await asyncio.gather(prober, return_exceptions=True)
        for each in streams:
            await each.end()
        alone = [_Written(session, base, seed + 100 + number) for number in range(2)]
        for each, other in zip(alone, streams, strict=True):
            await each.until(other.length_at(end))
        for each in alone:
            await each.end()
    taken = sum(
        each.time_of(other.length_at(end)) - each.time_of(other.length_at(start))
        for each, other in zip(alone, streams, strict=True)
    )
    return {
        "kept": taken / len(alone) / (end - start),
        "first_s": timing.first_s,
        "pause_s": max(each.longest_pause(start, end) for each in streams),
        "health_p99_ms": 1e3 * statistics.quantiles(health, n=100)[-1],
    }


class _Written:
    """A background stream: the number of its characters over time."""

    def __init__(self, session: aiohttp.ClientSession, base: str, seed: int) -> None:
        self._times: list[float] = []
        self._lengths: list[int] = []
        self._grown = asyncio.Event()
        # Sampled, so that nothing repeats and can be guessed; characters stand for tokens.
        sampled = {"temperature": 1.0, "top_p": 1.0, "seed": seed, "ignore_eos": True}
        job = Job(words(seed, 10), 6000, sampled)
        self._task = asyncio.create_task(stream(session, base, job, self._note))

    def _note(self, at: float, piece: str) -> None:
        self._times.append(at)
        self._lengths.append(len(piece) + (self._lengths[-1] if self._lengths else 0))
        self._grown.set()

    def length_at(self, time_s: float) -> int:
        """Characters received by then."""
        count = bisect.bisect_right(self._times, time_s)
        return self._lengths[count - 1] if count else 0

    def time_of(self, length: int) -> float:
        """The time of that many characters. Raises IndexError if they have not arrived."""
        return self._times[bisect.bisect_left(self._lengths, length)]

    def longest_pause(self, start: float, end: float) -> float:
        """The longest time between two pieces in the interval, in seconds."""
        inside = [at for at in self._times if start <= at <= end]
        return max(later - earlier for earlier, later in itertools.pairwise(inside))

    async def until(self, length: int) -> None:
        """Wait for that many characters. Raises RuntimeError if the stream ends first."""
        while not self._lengths or self._lengths[-1] < length:
            self._grown.clear()
            waiting = asyncio.create_task(self._grown.wait())
            await asyncio.wait((waiting, self._task), return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                waiting.cancel()
                raise RuntimeError(f"the stream ended at {self._lengths[-1:]} characters of {length}")

    async def end(self) -> None:
        """Close it; the server stops generating."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _probe(session: aiohttp.ClientSession, base: str, seconds: list[float]) -> None:
    while True:
        start = time.perf_counter()
        async with session.get(base + "/health") as reply:
            await reply.read()
        seconds.append(time.perf_counter() - start)
        await asyncio.sleep(_PROBE_S)


def clients_64(server: Running, seed: int) -> Figures:
    """Sixty-four clients at once: how many fail, and their time to the first token."""
    outcome = burst(server.base, [Job(words(seed * 100 + i, 10), 16) for i in range(64)], tolerate=True)
    firsts = sorted(timing.first_s for timing in outcome.timings)
    return {
        "failed": float(64 - len(outcome.timings)),
        "wall_s": outcome.wall_s,
        "first_p50_s": statistics.median(firsts),
        "first_max_s": firsts[-1],
        "tokens_per_s": outcome.tokens_per_s,
    }


def context_curve(server: Running, seed: int) -> Figures:
    """Prefill rate, and time between tokens after it, at growing lengths of the context."""
    figures: Figures = {}
    for thousands in CONTEXTS:
        timing: Timing = burst(server.base, [Job(words(seed + thousands, thousands * 300), 24)]).timings[0]
        figures |= {
            f"prefill_{thousands}k_per_s": timing.prompt_tokens / timing.first_s,
            f"decode_{thousands}k_ms": 1e3 * timing.between_s,
        }
    return figures


def stream_curve(server: Running, seed: int) -> Figures:
    """Tokens per second of 1 to 32 clients at once, each with its own short prompt."""
    return {
        f"streams_{count}": burst(
            server.base, [Job(words(seed * 1000 + count * 40 + i, 10), 32) for i in range(count)]
        ).tokens_per_s
        for count in STREAMS
    }
