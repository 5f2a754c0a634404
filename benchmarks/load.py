"""Load for any OpenAI-compatible server on loopback: streams completions and records the time of each piece."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

_WORDS = (
    "amber basin cedar delta ember fjord grove harbor island jasper kettle lagoon meadow nectar orchard pebble "
    "quarry ridge summit thicket"
).split()

PATIENCE = aiohttp.ClientTimeout(total=1800)
"""Time for one request: prompts of 16,000 tokens take minutes on a slow machine."""


def words(seed: int, count: int) -> str:
    """`count` pseudo-random words with numbers, the same for the same seed: about two to three tokens each."""
    rng = random.Random(seed)
    return " ".join(f"{rng.choice(_WORDS)}{rng.randrange(100)}" for _ in range(count))


@dataclass(frozen=True, slots=True)
class Job:
    """One streamed completion: its prompt and the other fields of the body."""

    prompt: str
    max_tokens: int
    extra: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one stream, in seconds; `tokens` as the server counts them."""

    first_s: float
    total_s: float
    between_s: float
    tokens: int
    prompt_tokens: int
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """All streams of a burst."""

    wall_s: float
    timings: list[Timing]

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens of all streams over the wall time."""
        return sum(t.tokens for t in self.timings) / self.wall_s

    @property
    def between_ms(self) -> float:
        """Median over the streams of the mean time between tokens."""
        return 1e3 * statistics.median(t.between_s for t in self.timings)

    @property
    def first_ms(self) -> float:
        """Median time to the first token."""
        return 1e3 * statistics.median(t.first_s for t in self.timings)


async def stream(
    session: aiohttp.ClientSession,
    base: str,
    job: Job,
    on_piece: Callable[[float, str], object] | None = None,
) -> Timing:
    """One completion, or chat if the job has messages. on_piece: called with each piece of text and its time."""
    route = "/v1/chat/completions" if "messages" in job.extra else "/v1/completions"
    body = {
        **({} if "messages" in job.extra else {"prompt": job.prompt}),
        "max_tokens": job.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "repeat_penalty": 1.0,
        **job.extra,
    }
    start = time.perf_counter()
    first = last = 0.0
    usage: dict[str, int] = {}
    text: list[str] = []
    async with session.post(base + route, json=body) as response:
        if response.status != 200:
            raise RuntimeError(f"{base} answered {response.status}: {(await response.text())[:300]}")
        async for line in response.content:
            data = line.removeprefix(b"data:").strip()
            if data == line.strip() or data == b"[DONE]":
                continue
            chunk = json.loads(data)
            if "error" in chunk:
                raise RuntimeError(f"{base} ended a stream with {chunk['error']}")
            usage = chunk.get("usage") or usage
            piece = "".join(_text(choice) for choice in chunk.get("choices", ()))
            if piece:
                last = time.perf_counter()
                first = first or last
                if on_piece is not None:
                    on_piece(last, piece)
                text.append(piece)
    tokens = usage.get("completion_tokens", len(text))
    return Timing(
        first_s=(first or time.perf_counter()) - start,
        total_s=time.perf_counter() - start,
        between_s=(last - first) / max(1, tokens - 1),
        tokens=tokens,
        prompt_tokens=usage.get("prompt_tokens", 0),
        text="".join(text),
    )


def _text(choice: dict[str, Any]) -> str:
    return choice.get("text") or choice.get("delta", {}).get("content") or ""


async def _burst(base: str, jobs: list[Job], *, tolerate: bool) -> Outcome:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=PATIENCE) as session:
        start = time.perf_counter()
        results = await asyncio.gather(
            *(stream(session, base, job) for job in jobs), return_exceptions=tolerate
        )
        wall_s = time.perf_counter() - start
    return Outcome(wall_s, [result for result in results if isinstance(result, Timing)])


def burst(base: str, jobs: list[Job], *, tolerate: bool = False) -> Outcome:
    """Send all jobs at the same instant and wait for all. Raises RuntimeError on any error reply, unless failures are
    tolerated: then the outcome leaves them out."""
    return asyncio.run(_burst(base, jobs, tolerate=tolerate))
