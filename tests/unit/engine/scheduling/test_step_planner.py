"""What a step computes: prompts, streams or both. The whole policy is in test_policy_simulated."""

from __future__ import annotations

import pytest

from jan_serve.engine.scheduling.prefill_costs import TILE
from jan_serve.engine.scheduling.step_costs import StepCosts
from jan_serve.engine.scheduling.step_planner import (
    BEGUN_TOKENS,
    MAX_SHARE,
    MIN_TOKENS,
    RUN_STEPS,
    Balance,
    Prompt,
    StepPlan,
    Streams,
    group_size,
    plan_step,
    reading_order,
)


def costs_of(token_s: float, decode_s: float = 0.0, *, streams: int = 1) -> StepCosts:
    """Costs of a machine where a stream's row costs `decode_s`, and more beside a prompt."""
    costs = StepCosts()
    for rows in (256, 256, TILE, 32):
        costs.observe(0, rows, rows * token_s)
    if decode_s:
        costs.observe(streams, 0, streams * decode_s)
        for rows in (256, TILE, 32):
            costs.observe(streams, rows, 1.2 * (rows * token_s + streams * decode_s))
    return costs


def plan(
    costs: StepCosts,
    prompts: int = 1,
    streams: int = 1,
    balance: Balance = Balance(),  # noqa: B008  frozen
    *,
    left: int = 6000,
    longest: int = 100,
    arrived: float = 10.0,
    share: float | None = None,
    chunk: int = 512,
) -> StepPlan:
    return plan_step(
        [Prompt(left, left, arrived=arrived)] * prompts,
        Streams(streams, longest, began=5.0),
        balance,
        costs,
        now=10.0,
        chunk=chunk,
        stream_share=share,
    )


def test_without_prompts_the_streams_decode() -> None:
    assert plan(StepCosts(), prompts=0) == StepPlan(0, decodes=True)


@pytest.mark.parametrize(
    ("token_s", "expected"),
    [(None, 512), (0.0001, 2048), (0.004, 960), (0.05, 64), (1.0, 64)],
)
@pytest.mark.parametrize("prompts", [1, 9])
def test_a_step_without_streams_is_bounded_in_time(
    token_s: float | None, prompts: int, expected: int
) -> None:
    costs = StepCosts() if token_s is None else costs_of(token_s)
    found = plan(costs, prompts, streams=0, chunk=2048)
    assert (found.prefill_tokens, found.decodes) == (expected, False)


def test_the_first_part_beside_streams_is_small_while_no_cost_is_known() -> None:
    assert plan(StepCosts()).prefill_tokens == MIN_TOKENS
    assert plan(StepCosts(), chunk=8).prefill_tokens == 8


@pytest.mark.parametrize(
    ("token_s", "decode_s", "prompts", "expected"),
    [
        (0.012, 0.024, 1, TILE),  # 30 steps earn 0.72 s, and a tile takes 0.77 s
        (0.004, 0.024, 1, 160),
        (0.004, 0.024, 7, 352),  # as PAUSE_S allows, and not 5 s
        (0.024, 0.050, 1, MIN_TOKENS),  # a tile would take more than PAUSE_S
        (0.500, 1.000, 1, MIN_TOKENS),
    ],
)
def test_a_pause_is_what_30_steps_of_the_streams_earn_the_prompts(
    token_s: float, decode_s: float, prompts: int, expected: int
) -> None:
    found = plan(costs_of(token_s, decode_s), prompts)
    assert (found.prefill_tokens, found.decodes) == (expected, False)


def test_a_pause_goes_on_while_another_tile_fits() -> None:
    costs = costs_of(0.004, 0.024)
    assert plan(costs, 3, balance=Balance(0.5)).prefill_tokens == 224, "whole parts of the 231 that fit"
    assert plan(costs, 3, balance=Balance(1.2)) == StepPlan(0, decodes=True)
    assert plan(costs, 3, balance=Balance(1.2), left=10).prefill_tokens > 0, "the rest of all prompts fits"


@pytest.mark.parametrize(
    ("prompts", "streams", "paused_s", "share", "due_s"),
    [
        (7, 1, 1.3, None, RUN_STEPS * 0.024),  # by heads 0.19 s: too many pauses
        (1, 1, 1.3, None, 1.3),
        (1, 3, 1.3, None, 1.3 * MAX_SHARE / (1 - MAX_SHARE)),  # by heads three times the pause
        (1, 1, 0.1, None, 0.1 * MAX_SHARE / (1 - MAX_SHARE)),  # 30 steps would be more than their share
        (7, 1, 1.3, 0.5, 1.3),
        (1, 3, 1.3, 0.2, 1.3 / 4),
    ],
)
def test_then_the_streams_run_until_they_had_their_share(
    prompts: int, streams: int, paused_s: float, share: float | None, due_s: float
) -> None:
    costs = costs_of(0.012, 0.024, streams=streams)
    for ran_s, decodes in ((due_s - 0.01, True), (due_s + 0.01, False)):
        found = plan(costs, prompts, streams, Balance(paused_s, ran_s), share=share)
        assert found.decodes == decodes, (ran_s, due_s)


@pytest.mark.parametrize(
    ("left", "prompts", "streams", "longest", "arrived", "answer", "reads"),
    [
        (100, 7, 1, 2, 1.0, 1000, True),
        (100, 7, 1, BEGUN_TOKENS, 1.0, 1000, False),  # the stream has more than just begun
        (100, 7, 1, 2, 6.0, 1000, False),  # the prompts arrived after it had
        (100, 11, 4, 2, 1.0, 1000, True),  # 17.8 s
        (100, 11, 4, 2, 1.0, 50, False),  # the group ends soon
        (100, 6, 4, 2, 1.0, 50, True),  # 11.8 s: all decode together
        (300, 11, 1, 2, 1.0, 50, True),  # a group is gathered in 10.8 s
        (300, 11, 4, 2, 1.0, 1000, False),  # 44 s
        (400, 11, 1, 2, 1.0, 1000, False),  # a group would take 14.4 s
    ],
)
def test_prompts_that_arrived_together_are_read_before_their_streams_run(
    left: int, prompts: int, streams: int, longest: int, arrived: float, answer: int, *, reads: bool
) -> None:
    found = plan_step(
        [Prompt(left, left, arrived=arrived)] * prompts,
        Streams(streams, longest, began=5.0, left=answer, read=100 * streams),
        Balance(1.3, 0.03),
        costs_of(0.012, 0.024, streams=streams),
        now=10.0,
        chunk=512,
    )
    assert found.decodes != reads


@pytest.mark.parametrize(("left", "decodes"), [(20, True), (30, False)])
def test_streams_that_end_soon_do_so_first(left: int, *, decodes: bool) -> None:
    streams = Streams(1, 100, began=5.0, left=left)
    costs = costs_of(0.012, 0.024)
    found = plan_step([Prompt(600, 600, arrived=6.0)], streams, Balance(), costs, now=10.0, chunk=512)
    assert found.decodes == decodes


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ({}, 4),
        ({1: 0.026, 4: 0.076}, 4),
        ({1: 0.010, 4: 0.030}, 12),
        ({8: 0.200}, 4),
        ({1: 0.010, 32: 0.012}, 64),
    ],
)
def test_a_group_is_as_large_as_people_read(steps: dict[int, float], expected: int) -> None:
    costs = StepCosts()
    for rows, seconds in steps.items():
        costs.observe(rows, 0, seconds)
    assert group_size(costs) == expected


def accelerated() -> StepCosts:
    """Rows cost nothing beside the 10 ms of each step."""
    costs = StepCosts()
    for rows in (256, 256, TILE):
        costs.observe(0, rows, 0.010)
    costs.observe(1, 0, 0.010)
    return costs


def test_streams_and_prompts_share_steps_if_that_saves_time() -> None:
    costs = accelerated()
    assert plan(costs).decodes, "it is tried"
    assert plan(costs).prefill_tokens >= TILE
    costs.observe(1, 256, 0.011)
    assert plan(costs).decodes
    assert plan(costs).prefill_tokens >= TILE


def test_they_do_not_if_it_saves_none_and_it_is_tried_again_later() -> None:
    costs = accelerated()
    for rows in (TILE, 256):
        costs.observe(1, rows, 0.030)
    assert not plan(costs).decodes
    for _ in range(32):
        costs.observe(0, 256, 0.010)
    assert plan(costs) == plan(costs) and plan(costs).decodes, "planning changes nothing"
    costs.observe(1, 256, 0.030)
    for _ in range(63):
        costs.observe(0, 256, 0.010)
    assert not plan(costs).decodes, "at growing intervals"


def test_they_do_not_if_the_streams_cost_too_little_to_matter() -> None:
    assert not plan(costs_of(0.012, 0.024)).decodes


def test_a_slow_machine_still_reads() -> None:
    costs = costs_of(1.0, 2.0)
    assert plan(costs).prefill_tokens == MIN_TOKENS


@pytest.mark.parametrize(("left", "expected"), [(300, 320), (100, 320), (150, 160), (400, 320)])
def test_a_step_without_streams_ends_with_a_long_prompt(left: int, expected: int) -> None:
    assert plan(costs_of(0.012), 7, streams=0, left=left).prefill_tokens == expected


@pytest.mark.parametrize(
    ("prompts", "now", "expected"),
    [
        ([(300, 300, 0.0), (100, 100, 1.0)], 1.0, (1, 0)),
        ([(300, 50, 0.0), (100, 100, 1.0)], 1.0, (0, 1)),
        ([(300, 300, 0.0), (100, 100, 5.9)], 6.0, (0, 1)),  # the first one would wait for more than twice 3 s
        ([(300, 300, 0.0), (300, 300, 0.1), (300, 300, 0.2)], 1.0, (0, 1, 2)),
        ([(300, 300, 0.2), (300, 300, 0.1), (300, 300, 0.0)], 1.0, (2, 1, 0)),
        (
            [(100, 100, 0.0), (300, 300, 5.5), (50, 50, 9.0)],
            9.0,
            (0, 2, 1),
        ),  # the second one may wait for 8 s
    ],
)
def test_the_shortest_prompt_is_read_first_unless_another_has_waited_too_long(
    prompts: list[tuple[int, int, float]], now: float, expected: tuple[int, ...]
) -> None:
    waiting = [Prompt(size, left, arrived=arrived) for size, left, arrived in prompts]
    assert reading_order(waiting, 0.01, now) == expected


def test_the_balance_starts_a_new_pause_after_the_streams_ran() -> None:
    balance = Balance().after(1, 0.0, 0.8).after(1, 0.0, 0.3)
    assert balance == Balance(1.1, 0.0)
    assert balance.after(1, 0.1, 0.0).after(1, 0.1, 0.0) == Balance(1.1, 0.2)
    assert balance.after(1, 0.1, 0.0).after(1, 0.0, 0.5) == Balance(0.5, 0.0)
    assert balance.after(1, 0.02, 0.4).after(1, 0.02, 0.3) == Balance(0.3, 0.02), "mixed steps pause little"
    assert balance.after(0, 0.0, 0.5) == Balance(), "no stream waits"
