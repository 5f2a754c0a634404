"""What the engine's policy keeps in a simulated engine whose steps cost what was measured.

How it compares with other policies: `python -m benchmarks.planner`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.planner_simulation import (
    Mixed,
    Planned,
    Request,
    StepSeconds,
    accelerator,
    arrivals,
    burst,
    simulate,
    two_cores,
    two_vnni_cores,
    warm,
)

LONGEST_PAUSE_S = 1.55
"""Planned are 1.45 s."""


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


@pytest.mark.parametrize("seconds_of", [two_cores, two_vnni_cores])
@pytest.mark.parametrize(
    ("count", "prompt", "answer"), [(8, 300, 64), (8, 1000, 64), (16, 100, 64), (8, 300, 300)]
)
def test_nobody_stutters_in_a_burst(seconds_of: StepSeconds, count: int, prompt: int, answer: int) -> None:
    ours = simulate(burst(count, prompt, answer), warm(Planned(), seconds_of), seconds_of)
    assert max(ours.gaps) <= LONGEST_PAUSE_S


def test_nobody_stutters_among_arrivals_and_no_work_is_added() -> None:
    """A server that mixes all steps lets streams wait for whole prompts, and computes as long."""
    ours, mixed = (simulate(arrivals(300, seed=3), warm(policy)) for policy in (Planned(), Mixed()))
    assert max(ours.gaps) <= LONGEST_PAUSE_S < 5.0 < max(mixed.gaps)
    assert ours.wall_s <= 1.001 * mixed.wall_s
    assert ours.mean_end_s < mixed.mean_end_s


def test_nobody_starves() -> None:
    """A prompt waits at most twice as long as in order of arrival."""
    requests = [Request(each.arrived, each.prompt, 1) for each in arrivals(300, seed=5, load=0.9)]
    simulate(requests, warm(Planned()), places=1_000)
    free_s, longest_step_s = 0.0, 2.0
    for request in requests:
        free_s = max(free_s, request.arrived) + two_cores(0, request.prompt)
        assert request.first_s <= 2.0 * (free_s - request.arrived) + longest_step_s


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
    for seed in range(2):
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
    """Whatever the clock says, few plans compute the same tokens in steps that cost much more. Another program can make
    eight streams look as dear as eight steps of one: then prompts end one by one."""
    quiet = simulate(burst(count, prompt), warm(Planned()))
    ratios: list[float] = []
    for seed in range(4 if noise is not starved else 1):
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
