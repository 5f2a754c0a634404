"""A simulated engine: requests, a policy and what steps cost give the times of all tokens. Times in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from jan_serve.engine.scheduling.step_planner import StepPlanner

PLACES = 8
CHUNK = 512


@dataclass(slots=True, eq=False)
class Request:
    """A prompt and the length of its answer, as the planner reads a sequence. times: of the answer's tokens."""

    arrived: float
    prompt: int
    answer: int = 64
    num_computed: int = 0
    num_cached: int = 0
    num_generated: int = 0
    max_new: int = 0
    prefill_end: int = 0
    first_token: float | None = None
    times: list[float] = field(default_factory=list[float])
    client: str = ""

    def __post_init__(self) -> None:
        self.prefill_end = self.prompt
        self.max_new = self.max_new or self.answer

    @property
    def state(self) -> Request:
        return self

    @property
    def is_prefilling(self) -> bool:
        return self.num_computed < self.prompt

    @property
    def num_uncomputed(self) -> int:
        return self.prompt - self.num_computed

    @property
    def first_s(self) -> float:
        return self.times[0] - self.arrived

    def write(self, now: float) -> None:
        """One more token of its answer."""
        if self.first_token is None:
            self.first_token = now
        self.num_generated += 1
        self.times.append(now)


class StepSeconds(Protocol):
    """True seconds of a step of these numbers of rows."""

    def __call__(self, num_decode: int, num_prefill: int) -> float: ...


_DECODE = (0.0, 0.026, 0.050, 0.077, 0.076, 0.113, 0.120, 0.135, 0.136)
_DECODE_VNNI = (0.0, 0.0228, 0.0463, 0.0545, 0.0602, 0.0815, 0.0876, 0.0951, 0.1006)


def two_cores(num_decode: int, num_prefill: int) -> float:
    """Seconds of a step, as measured for Qwen2.5-0.5B's shape on two cores: decode rows never ride for nothing.

    Kernels take four rows together, and prompts best in multiples of eight and from 64 rows on.
    """
    token_s = 0.0079 if num_prefill % 8 == 0 else 0.0082 if num_prefill % 4 == 0 else 0.0089
    return _on_cpu(num_decode, num_prefill, _DECODE, token_s)


def two_vnni_cores(num_decode: int, num_prefill: int) -> float:
    """The same model on two cores with AVX-512 and VNNI, which read prompts faster than they write answers."""
    return _on_cpu(num_decode, num_prefill, _DECODE_VNNI, 0.0051)


def _on_cpu(num_decode: int, num_prefill: int, decode: Sequence[float], token_s: float) -> float:
    decode_s = decode[num_decode] if num_decode < len(decode) else decode[-1] / 8 * num_decode
    if not num_prefill:
        return decode_s
    short = float(np.interp(num_prefill, [16, 32, 48, 64], [1.75, 1.18, 1.12, 1.0]))
    prefill_s = 0.005 + token_s * short * num_prefill
    return prefill_s + decode_s + 0.03 if num_decode else prefill_s


def accelerator(num_decode: int, num_prefill: int) -> float:
    """Each step reads the weights in 10 ms; rows are nearly free."""
    return 0.010 + 0.00002 * num_decode + 0.00004 * num_prefill


@dataclass(slots=True)
class Step:
    """What a policy decides: tokens of each prompt, and whether the streams decode."""

    tokens: list[tuple[Request, int]]
    decodes: bool


class Policy(Protocol):
    """Decides a step, and learns how long it took."""

    def decide(self, now: float, prompts: Sequence[Request], streams: Sequence[Request]) -> Step: ...

    def learn(self, num_decode: int, num_prefill: int, seconds: float) -> None: ...


def in_order(prompts: Iterable[Request], tokens: int) -> list[tuple[Request, int]]:
    """At most so many tokens of the prompts are read, those of the first ones first."""
    return _within([(request, request.num_uncomputed) for request in prompts], tokens)


def _within(reads: Iterable[tuple[Request, int]], tokens: int) -> list[tuple[Request, int]]:
    taken: list[tuple[Request, int]] = []
    for request, most in reads:
        if count := min(most, tokens):
            taken.append((request, count))
            tokens -= count
    return taken


class Planned:
    """The engine's policy."""

    def __init__(self, stream_share: float | None = None) -> None:
        self.planner: StepPlanner[Request] = StepPlanner(CHUNK, stream_share)

    def decide(self, now: float, prompts: Sequence[Request], streams: Sequence[Request]) -> Step:
        step = self.planner.plan([*streams, *prompts], now=now)
        return Step(_within(step.reads, step.max_prefill), bool(step.streams))

    def learn(self, num_decode: int, num_prefill: int, seconds: float) -> None:
        self.planner.observe(num_decode, num_prefill, seconds)


class Mixed:
    """llama-server's policy: all streams in each step, and the batch filled up with prompts in order of arrival."""

    def decide(self, now: float, prompts: Sequence[Request], streams: Sequence[Request]) -> Step:
        return Step(in_order(prompts, 2048 - len(streams)), decodes=True)

    def learn(self, num_decode: int, num_prefill: int, seconds: float) -> None:
        pass


class ConstantShare:
    """First come first served, in parts of 64 tokens, after which the streams run until they had their share."""

    def __init__(self, share: float) -> None:
        self._ratio = share / (1.0 - share)
        self._owed_s = 0.0
        self._has_streams = False

    def decide(self, now: float, prompts: Sequence[Request], streams: Sequence[Request]) -> Step:
        self._has_streams = bool(streams)
        if streams and (self._owed_s > 0.0 or not prompts):
            return Step([], decodes=True)
        return Step(in_order(prompts, 64 if streams else 320), decodes=False)

    def learn(self, num_decode: int, num_prefill: int, seconds: float) -> None:
        if num_decode:
            self._owed_s -= seconds
        elif self._has_streams:
            self._owed_s += seconds * self._ratio
        else:
            self._owed_s = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """All requests with their times, the steps as (streams, prompt tokens, seconds), and the time of the last token."""

    requests: list[Request]
    steps: list[tuple[int, int, float]]
    wall_s: float

    @property
    def firsts(self) -> list[float]:
        return sorted(request.first_s for request in self.requests)

    @property
    def gaps(self) -> list[float]:
        """Times between tokens, of all streams."""
        return [float(gap) for request in self.requests for gap in np.diff(request.times)]

    @property
    def mean_end_s(self) -> float:
        return float(np.mean([request.times[-1] - request.arrived for request in self.requests]))

    def work_s(self, seconds_of: StepSeconds) -> float:
        """What the steps would have taken if no other program had run."""
        return sum(seconds_of(num_decode, num_prefill) for num_decode, num_prefill, _ in self.steps)


def simulate(
    requests: Iterable[Request],
    policy: Policy,
    seconds_of: StepSeconds = two_cores,
    *,
    places: int = PLACES,
    measured: Callable[[float], float] = lambda seconds: seconds,
    slowed: Callable[[float], float] = lambda _now: 1.0,
) -> Run:
    """Run all requests to their ends. measured: what the policy's clock makes of a time.

    slowed: how many times longer a step takes that begins at this time, since other programs run.
    """
    all_requests = sorted(requests, key=lambda request: request.arrived)
    waiting, running = list(all_requests), list[Request]()
    steps: list[tuple[int, int, float]] = []
    now = 0.0
    while waiting or running:
        while waiting and waiting[0].arrived <= now and len(running) < places:
            running.append(waiting.pop(0))
        if not running:
            now = waiting[0].arrived
            continue
        prompts = [request for request in running if request.is_prefilling]
        streams = [request for request in running if not request.is_prefilling]
        step = policy.decide(now, prompts, streams)
        num_prefill = sum(count for _, count in step.tokens)
        num_decode = len(streams) if step.decodes else 0
        seconds = seconds_of(num_decode, num_prefill) * slowed(now)
        assert seconds > 0.0, "a step computes something"
        now += seconds
        steps.append((num_decode, num_prefill, seconds))
        policy.learn(num_decode, num_prefill, measured(seconds))
        for request, count in step.tokens:
            request.num_computed += count
        ended = [request for request, _ in step.tokens if not request.is_prefilling]
        for request in [*(streams if num_decode else ()), *ended]:
            request.write(now)
        running = [request for request in running if len(request.times) < request.answer]
    return Run(all_requests, steps, now)


def burst(count: int, prompt: int, answer: int = 64) -> list[Request]:
    """Clients that ask at almost the same instant: a server begins with the first one."""
    return [Request(0.003 * number, prompt, answer) for number in range(count)]


def warm(policy: Policy, seconds_of: StepSeconds = two_cores) -> Policy:
    """The policy after one request, as of a server that is in use."""
    simulate([Request(-100.0, 100, 4)], policy, seconds_of)
    return policy


def arrivals(count: int, seed: int, load: float = 0.6) -> list[Request]:
    """An open loop: Poisson arrivals at this share of what the machine can do, prompts of 100 to 1,000 tokens."""
    rng = np.random.default_rng(seed)
    mean_s = (550 * 0.0082 + 64 * 0.026) / load
    times = np.cumsum(rng.exponential(mean_s, count))
    prompts = rng.integers(100, 1001, count)
    return [Request(float(at), int(prompt)) for at, prompt in zip(times, prompts, strict=True)]
