"""The engine's policy in a simulated engine whose steps cost what was measured, beside other policies.

The figures are those of docs/adr/0035-streams-and-prompts-take-turns.md.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.unit.engine.scheduling.simulation import (
    ConstantShare,
    Mixed,
    Planned,
    Policy,
    Request,
    Run,
    Step,
    StepSeconds,
    accelerator,
    in_order,
    simulate,
    two_cores,
    two_vnni_cores,
)

LONGEST_PAUSE_S = 1.55
"""Planned are 1.45 s."""


def burst(count: int, prompt: int, answer: int = 64) -> list[Request]:
    """Clients that ask at almost the same instant: a server begins with the first one."""
    return [Request(0.003 * number, prompt, answer) for number in range(count)]


def warm(policy: Policy, seconds_of: StepSeconds = two_cores) -> Policy:
    """After one request, as a server that is in use."""
    simulate([Request(-100.0, 100, 4)], policy, seconds_of)
    return policy


def arrivals(count: int, seed: int, load: float = 0.6) -> list[Request]:
    """An open loop: Poisson arrivals at this share of what the machine can do, prompts of 100 to 1,000 tokens."""
    rng = np.random.default_rng(seed)
    mean_s = (550 * 0.0082 + 64 * 0.026) / load
    times = np.cumsum(rng.exponential(mean_s, count))
    prompts = rng.integers(100, 1001, count)
    return [Request(float(at), int(prompt)) for at, prompt in zip(times, prompts, strict=True)]


@pytest.mark.parametrize(
    ("seconds_of", "count", "prompt", "answer", "wall", "median", "last", "p95", "end"),
    [
        (two_cores, 8, 300, 64, 0.98, 0.85, 1.15, 0.60, 0.80),
        (two_cores, 8, 1000, 64, 1.00, 1.00, 1.10, 0.40, 0.60),
        (two_cores, 16, 100, 64, 1.00, 1.25, 1.00, 1.00, 1.00),
        (two_cores, 8, 300, 300, 0.98, 0.95, 1.00, 1.00, 1.00),
        (two_vnni_cores, 8, 300, 64, 1.00, 1.03, 1.00, 1.00, 1.00),
        # Half of the prompts wait for the answers of the others: the mean answer ends sooner, the last one later.
        (two_vnni_cores, 8, 1000, 64, 1.03, 1.26, 1.10, 0.62, 0.78),
    ],
)
def test_bursts_beside_a_server_that_mixes_all_steps(
    seconds_of: StepSeconds,
    count: int,
    prompt: int,
    answer: int,
    wall: float,
    median: float,
    last: float,
    p95: float,
    end: float,
) -> None:
    """Ratios: wall time, median and last first token, p95 of the time between tokens, mean time to the end."""
    ours = simulate(burst(count, prompt, answer), warm(Planned(), seconds_of), seconds_of)
    theirs = simulate(burst(count, prompt, answer), Mixed(), seconds_of)
    assert ours.wall_s <= wall * theirs.wall_s
    assert np.median(ours.firsts) <= median * np.median(theirs.firsts)
    assert ours.firsts[-1] <= last * theirs.firsts[-1]
    assert np.quantile(ours.gaps, 0.95) <= p95 * np.quantile(theirs.gaps, 0.95) + 1e-9
    assert ours.mean_end_s <= end * theirs.mean_end_s
    assert max(ours.gaps) <= LONGEST_PAUSE_S


@pytest.mark.parametrize("factor", [0.25, 1.0, 1.5, 4.0])
@pytest.mark.parametrize(("count", "prompt"), [(8, 300), (8, 1000), (16, 100)])
def test_a_faster_or_slower_machine_reads_and_writes_in_the_same_groups(
    count: int, prompt: int, factor: float
) -> None:
    """Up to the limits of a second for a step and of 1.5 s for a pause, all times scale."""

    def seconds_of(num_decode: int, num_prefill: int) -> float:
        return factor * two_cores(num_decode, num_prefill)

    ours = simulate(burst(count, prompt), warm(Planned(), seconds_of), seconds_of)
    expected = simulate(burst(count, prompt), warm(Planned()))
    assert max(rows for rows, _, _ in ours.steps) == max(rows for rows, _, _ in expected.steps)
    assert ours.wall_s == pytest.approx(factor * expected.wall_s, rel=0.06)
    assert ours.mean_end_s == pytest.approx(factor * expected.mean_end_s, rel=0.1)


@functools.cache
def long_run(name: str) -> Run:
    policy: dict[str, Callable[[], Policy]] = {
        "planned": Planned,
        "mixed": Mixed,
        "share 0.5": lambda: ConstantShare(0.5),
        "share 0.7": lambda: ConstantShare(0.7),
    }
    return simulate(arrivals(2_000, seed=3), warm(policy[name]()))


def test_2_000_arrivals_end_sooner_and_nobody_stutters() -> None:
    """First tokens come as with the server that mixes all steps, which lets streams wait for whole prompts."""
    ours, mixed = long_run("planned"), long_run("mixed")
    assert ours.wall_s <= 1.001 * mixed.wall_s
    assert np.median(ours.firsts) <= 1.02 * np.median(mixed.firsts)
    assert np.quantile(ours.firsts, 0.95) <= 1.10 * np.quantile(mixed.firsts, 0.95)
    assert np.quantile(ours.gaps, 0.95) <= 0.60 * np.quantile(mixed.gaps, 0.95)
    assert max(ours.gaps) <= LONGEST_PAUSE_S < 10.0 < max(mixed.gaps)
    assert ours.mean_end_s <= 0.65 * mixed.mean_end_s


@pytest.mark.parametrize("share", [0.5, 0.7])
def test_no_constant_share_in_order_of_arrival_brings_first_tokens_sooner(share: float) -> None:
    ours, constant = long_run("planned"), long_run(f"share {share}")
    for quantile in (0.5, 0.95):
        assert np.quantile(ours.firsts, quantile) <= 1.01 * np.quantile(constant.firsts, quantile)


def test_nobody_starves() -> None:
    """A prompt waits at most twice as long as in order of arrival."""
    requests = [Request(each.arrived, each.prompt, 1) for each in arrivals(1_000, seed=5, load=0.9)]
    simulate(requests, warm(Planned()), places=1_000)
    free_s, longest_step_s = 0.0, 2.0
    for request in requests:
        free_s = max(free_s, request.arrived) + two_cores(0, request.prompt)
        assert request.first_s <= 2.0 * (free_s - request.arrived) + longest_step_s


class Fixed:
    """Reads the prompts in a given order, and lets the streams run alone after each for a number of steps."""

    def __init__(self, order: Sequence[Request], steps: Sequence[int]) -> None:
        self._left = list(zip(order, steps, strict=True))
        self._run = 0

    def decide(self, now: float, prompts: Sequence[Request], streams: Sequence[Request]) -> Step:
        if streams and (self._run > 0 or not prompts):
            self._run -= 1
            return Step([], decodes=True)
        while not self._left[0][0].num_uncomputed:
            self._left.pop(0)
        request, self._run = self._left[0]
        return Step(in_order([request], request.num_uncomputed), decodes=False)

    def learn(self, num_decode: int, num_prefill: int, seconds: float) -> None:
        pass


def best_mean_end_s(prompts: Sequence[int], answer: int) -> float:
    """The least mean time to the end that any order with any runs between the prompts gives."""
    best = float("inf")
    for order in itertools.permutations(range(len(prompts))):
        for steps in itertools.product((0, answer // 2, answer), repeat=len(prompts)):
            requests = [Request(0.0, prompt, answer) for prompt in prompts]
            run = simulate(requests, Fixed([requests[index] for index in order], steps))
            best = min(best, run.mean_end_s)
    return best


@pytest.mark.parametrize(
    ("prompts", "most"),
    [((200, 300), 1.3), ((300, 300, 300), 1.3), ((1000, 200, 200), 1.3), ((600, 100, 300), 1.9)],
)
def test_small_bursts_end_nearly_as_soon_as_the_best_schedule_allows(
    prompts: tuple[int, ...], most: float
) -> None:
    """The best one knows all lengths. The last one is read before its streams run, which ends sooner for all."""
    run = simulate([Request(0.0, prompt, 16) for prompt in prompts], warm(Planned()))
    assert run.mean_end_s <= most * best_mean_end_s(prompts, 16)


def test_a_long_prompt_leaves_the_streams_their_share() -> None:
    streams = [Request(0.0, 20, 4000), Request(0.0, 20, 4000)]
    prompt = Request(4.0, 6000, 2)
    run = simulate([*streams, prompt], warm(Planned()))
    beside = [at for at in streams[0].times if prompt.arrived <= at <= prompt.times[0]]
    kept = len(beside) * two_cores(2, 0) / (prompt.times[0] - prompt.arrived)
    assert kept >= 0.6
    assert max(run.gaps) <= LONGEST_PAUSE_S


@pytest.mark.parametrize("seconds_of", [two_cores, accelerator])
def test_a_jittering_clock_changes_little(seconds_of: StepSeconds) -> None:
    """Every measured time is off by a fifth, and each tenth one by a factor of four."""
    for seed in range(5):
        rng = np.random.default_rng(seed)

        def measured(seconds: float, rng: np.random.Generator = rng) -> float:
            return seconds * float(rng.lognormal(0.0, 0.2)) * (4.0 if rng.random() < 0.1 else 1.0)

        exact = simulate(arrivals(100, seed), warm(Planned(), seconds_of), seconds_of)
        noisy = simulate(arrivals(100, seed), warm(Planned(), seconds_of), seconds_of, measured=measured)
        assert noisy.wall_s <= 1.02 * exact.wall_s
        assert np.quantile(noisy.firsts, 0.95) <= 1.2 * np.quantile(exact.firsts, 0.95)
        assert max(noisy.gaps) <= 2.0 * LONGEST_PAUSE_S


def outliers(seed: int) -> Callable[[float], float]:
    """A step of 20 takes ten times as long."""
    rng = np.random.default_rng(seed)
    return lambda _now: 10.0 if rng.random() < 0.05 else 1.0


def other_program(seed: int) -> Callable[[float], float]:
    """Everything takes twice as long for 5 s of each 20."""
    return lambda now: 2.0 if (now + 7 * seed) % 20 < 5 else 1.0


def starved(_seed: int) -> Callable[[float], float]:
    """Others have nine tenths of the machine."""
    return lambda _now: 10.0


@pytest.mark.parametrize("noise", [outliers, other_program, starved])
@pytest.mark.parametrize(("count", "prompt"), [(8, 300), (8, 1000), (16, 100)])
def test_slow_steps_make_no_work(
    noise: Callable[[int], Callable[[float], float]], count: int, prompt: int
) -> None:
    """Whatever the clock says, few plans compute the same tokens in steps that cost much more.

    Another program can make eight streams look as dear as eight steps of one: then prompts end one by one.
    """
    quiet = simulate(burst(count, prompt), warm(Planned()))
    ratios: list[float] = []
    for seed in range(8 if noise is not starved else 1):
        noisy = simulate(burst(count, prompt), warm(Planned()), slowed=noise(seed))
        ratios.append(noisy.work_s(two_cores) / quiet.work_s(two_cores))
        assert sum(rows for rows, _, _ in noisy.steps) == sum(rows for rows, _, _ in quiet.steps)
    assert max(ratios) <= 1.2
    assert noise is starved or np.mean(ratios) <= 1.05


@pytest.mark.parametrize(("count", "prompt"), [(8, 300), (8, 1000), (16, 100)])
def test_an_accelerator_computes_prompts_and_streams_together(count: int, prompt: int) -> None:
    ours = simulate(burst(count, prompt), warm(Planned(), accelerator), accelerator)
    theirs = simulate(burst(count, prompt), Mixed(), accelerator)
    assert ours.wall_s <= 1.2 * theirs.wall_s
    assert max(ours.gaps) < 0.2


def test_a_constant_share_can_be_set() -> None:
    early, late = (simulate(burst(8, 300), warm(Planned(share))) for share in (0.05, 0.95))
    assert early.firsts[-1] < 0.85 * late.firsts[-1], "a low share reads prompts sooner"
    assert np.quantile(early.gaps, 0.95) > np.quantile(late.gaps, 0.95)
