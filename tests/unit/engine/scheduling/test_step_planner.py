"""What a step computes: prompts, streams or both. The whole policy is in test_policy_simulated."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from benchmarks.planner_simulation import Request
from jan_serve.engine.scheduling.step_costs import PART, TILE, StepCosts
from jan_serve.engine.scheduling.step_planner import (
    JOIN_S,
    MAX_SHARE,
    PAUSE_S,
    RUN_STEPS,
    StepPlan,
    StepPlanner,
    reading_order,
)

ENDLESS = 1_000_000


def learn(costs: StepCosts, token_s: float, decode_s: float = 0.0, *, streams: int = 1) -> None:
    """Costs of a machine where a stream's row costs `decode_s`, and more beside a prompt."""
    for _ in range(2):
        costs.observe(0, 256, 256 * token_s)
    if decode_s:
        costs.observe(streams, 0, streams * decode_s)
        costs.observe(streams, 256, 1.2 * (256 * token_s + streams * decode_s))


def planner_of(
    token_s: float = 0.0,
    decode_s: float = 0.0,
    *,
    streams: int = 1,
    share: float | None = None,
    chunk: int = 512,
) -> StepPlanner[Request]:
    planner: StepPlanner[Request] = StepPlanner(chunk, share)
    if token_s:
        learn(planner.costs, token_s, decode_s, streams=streams)
    return planner


def prompts_of(count: int, left: int, *, arrived: float = 6.0, answer: int = ENDLESS) -> list[Request]:
    return [Request(arrived, left, answer) for _ in range(count)]


def streams_of(
    count: int = 1, *, written: int = 100, began: float = 5.0, left: int = ENDLESS
) -> list[Request]:
    return [
        Request(0.0, 10, written + left, num_computed=10, num_generated=written, first_token=began)
        for _ in range(count)
    ]


def total(step: StepPlan[Request]) -> int:
    """Tokens of prompts that a step computes."""
    return min(step.max_prefill, sum(most for _, most in step.reads))


@pytest.mark.parametrize(
    ("token_s", "expected"), [(0.0, 512), (0.0001, 2048), (0.004, 448), (0.05, 64), (1.0, 64)]
)
@pytest.mark.parametrize("prompts", [1, 9])
def test_a_step_without_streams_is_bounded_in_time(token_s: float, prompts: int, expected: int) -> None:
    step = planner_of(token_s, chunk=2048).plan(prompts_of(prompts, 6000), now=10.0)
    assert (step.streams, total(step)) == ([], expected)


def test_the_first_part_beside_streams_is_small_while_no_cost_is_known() -> None:
    for chunk, expected in ((512, PART), (8, 8)):
        step = planner_of(chunk=chunk).plan([*streams_of(), *prompts_of(1, 6000)], now=10.0)
        assert total(step) == expected


@pytest.mark.parametrize(
    ("token_s", "decode_s", "prompts", "expected"),
    [
        (0.012, 0.024, 1, TILE),  # 30 steps earn 0.72 s, and a tile takes 0.77 s
        (0.004, 0.024, 1, 160),
        (0.004, 0.024, 7, 320),  # as PAUSE_S allows, and not 5 s
        (0.024, 0.050, 1, PART),  # a tile would take more than PAUSE_S
        (0.500, 1.000, 1, PART),
    ],
)
def test_a_pause_is_what_30_steps_of_the_streams_earn_the_prompts(
    token_s: float, decode_s: float, prompts: int, expected: int
) -> None:
    step = planner_of(token_s, decode_s).plan([*streams_of(), *prompts_of(prompts, 6000)], now=10.0)
    assert (step.streams, total(step)) == ([], expected)


@pytest.mark.parametrize(
    ("paused_s", "left", "expected"),
    [
        (0.5, 6000, 192),  # whole parts of the 219 tokens that fit
        (1.2, 6000, 0),
        (1.2, 9, 27),  # the rest of all prompts fits
    ],
)
def test_a_pause_goes_on_while_another_tile_fits(paused_s: float, left: int, expected: int) -> None:
    planner, turn = planner_of(0.004, 0.024), [*streams_of(), *prompts_of(3, 6000)]
    planner.plan(turn, now=10.0)
    planner.observe(0, int(paused_s / 0.004), paused_s)
    turn[1:] = prompts_of(3, left)
    step = planner.plan(turn, now=10.0)
    assert (total(step), bool(step.streams)) == (expected, not expected)


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
def test_after_a_pause_the_streams_run_until_they_had_their_share(
    prompts: int, streams: int, paused_s: float, share: float | None, due_s: float
) -> None:
    for ran_s, decodes in ((due_s - 0.01, True), (due_s + 0.01, False)):
        planner = planner_of(0.012, 0.024 / streams, streams=streams, share=share)
        turn = [*streams_of(streams), *prompts_of(prompts, 6000)]
        planner.plan(turn, now=10.0)
        planner.observe(0, round(paused_s / 0.012), paused_s)
        planner.observe(streams, 0, ran_s)
        for _ in range(8):  # that step took as long as many
            planner.costs.observe(streams, 0, 0.024)
        assert bool(planner.plan(turn, now=10.0).streams) == decodes, (ran_s, due_s)


@pytest.mark.parametrize(
    ("left", "prompts", "streams", "arrived", "answer", "joins"),
    [
        (60, 7, 1, 1.0, 64, True),
        (60, 7, 1, 6.0, 64, False),  # the prompts arrived after the stream had begun
        (1100, 1, 1, 1.0, 10_000, False),  # 13 s, which is more than JOIN_S
        (900, 1, 1, 1.0, 10_000, True),
        (900, 1, 4, 1.0, 60, False),  # the streams end sooner than the prompt is read
        (400, 4, 4, 1.0, 10_000, False),  # 19 s
    ],
)
def test_streams_wait_for_prompts_that_arrived_with_them(
    left: int, prompts: int, streams: int, arrived: float, answer: int, *, joins: bool
) -> None:
    """With a token after each pause."""
    assert 900 * 0.012 < JOIN_S < 1100 * 0.012
    planner = planner_of(0.012, 0.024)
    for _ in range(4):
        planner.costs.observe(8, 0, 0.1)
    turn = [*streams_of(streams, left=answer), *prompts_of(prompts, left, arrived=arrived, answer=answer)]
    planner.plan(turn, now=10.0)
    planner.observe(0, 108, PAUSE_S)
    assert planner.plan(turn, now=10.0).streams
    planner.observe(streams, 0, 0.024 * streams)
    assert bool(planner.plan(turn, now=10.0).streams) != joins


@pytest.mark.parametrize(("left", "reads"), [(290, False), (310, True)])
def test_streams_that_end_before_a_prompt_could_be_read_do_so_first(left: int, *, reads: bool) -> None:
    """At 24 ms a token. The prompt takes 7.2 s, whatever the order, and pauses would help nobody."""
    for tokens, expected in ((600, reads), (30, True)):
        turn = [*streams_of(left=left), *prompts_of(1, tokens)]
        assert bool(planner_of(0.012, 0.024).plan(turn, now=10.0).reads) == expected


DECODES = ((1, 0.013), (4, 0.038), (8, 0.076)) * 2


def steps(prompts: list[Request], decodes: Iterable[tuple[int, float]] = DECODES) -> list[list[int]]:
    """Tokens of each prompt in each step without streams, until all are read. decodes: what decode steps took."""
    found: list[list[int]] = []
    planner = planner_of(0.004)
    for rows, seconds in decodes:
        planner.costs.observe(rows, 0, seconds)
    while waiting := [prompt for prompt in prompts if prompt.is_prefilling]:
        step = planner.plan(waiting, now=100.0)
        room, before = step.max_prefill, [prompt.num_computed for prompt in prompts]
        for prompt, most in step.reads:
            count = min(most, room)
            prompt.num_computed += count
            room -= count
        found.append([prompt.num_computed - had for prompt, had in zip(prompts, before, strict=True)])
    return found


def test_the_prompts_of_a_group_end_in_one_step() -> None:
    """What other prompts read beside them fills the parts up, and does not end."""
    found = steps(prompts_of(8, 300, arrived=0.0, answer=64))
    ends = [max(index for index, step in enumerate(found) if step[number]) for number in range(8)]
    assert ends == [ends[0]] * 4 + [ends[4]] * 4
    assert ends[0] < ends[4]
    assert [sum(column) for column in zip(*found, strict=True)] == [300] * 8
    assert all(sum(step) % 32 == 0 for step in found[:-1])


@pytest.mark.parametrize(("computed", "together"), [(298, True), (299, False)])
def test_an_arrival_changes_the_group_until_a_member_is_read(computed: int, *, together: bool) -> None:
    """The one that came late ends with the others only if it joined their group."""
    planner = planner_of(0.004, 0.024)
    for _ in range(4):
        planner.costs.observe(8, 0, 0.03)
    first, late = prompts_of(2, 300, arrived=0.0, answer=64), Request(1.0, 300, 64)
    planner.plan(first, now=1.0)
    first[0].num_computed, first[1].num_computed, late.num_computed = computed, 280, 280
    step = planner.plan([*first, late], now=1.5)
    assert dict((request is late, most) for request, most in step.reads)[True] == 20 - (not together)


def accelerated() -> StepPlanner[Request]:
    """Rows cost nothing beside the 10 ms of each step."""
    planner: StepPlanner[Request] = StepPlanner(512)
    for _ in range(2):
        planner.costs.observe(0, 256, 0.010)
    planner.costs.observe(1, 0, 0.010)
    return planner


def mixes(planner: StepPlanner[Request], *, streams: int = 1, prompts: int = 1) -> int:
    """Tokens of prompts beside the streams of a step; 0 if it has rows of one kind only."""
    step = planner.plan([*streams_of(streams), *prompts_of(prompts, 6000)], now=10.0)
    return total(step) if step.streams else 0


def test_streams_and_prompts_share_steps_if_that_saves_time() -> None:
    planner = accelerated()
    assert mixes(planner) >= TILE, "it is tried"
    planner.observe(1, 256, 0.011)
    assert mixes(planner) >= TILE


def test_they_do_not_if_it_saves_none_and_it_is_tried_again_later() -> None:
    planner = accelerated()
    planner.costs.observe(1, 256, 0.030)
    assert not mixes(planner)
    for _ in range(256):
        planner.costs.observe(0, 256, 0.010)
    assert mixes(planner)
    planner.costs.observe(1, 256, 0.030)
    assert not mixes(planner)


@pytest.mark.parametrize(("token_s", "expected"), [(0.001, 96), (0.0015, TILE), (0.002, 0)])
def test_they_do_not_if_a_token_of_a_stream_would_wait_for_more_than_two_steps(
    token_s: float, expected: int
) -> None:
    planner = planner_of(token_s)
    planner.costs.observe(1, 0, 0.1)
    planner.costs.observe(1, 256, 0.7 * (256 * token_s + 0.1))
    assert mixes(planner, prompts=7) == expected


@pytest.mark.parametrize(("left", "expected"), [(70, 96), (40, 64), (60, 64), (400, 256)])
def test_a_step_without_streams_ends_with_the_group(left: int, expected: int) -> None:
    """A group of one, since an answer has one token. The rest of its last part is of the next prompts."""
    planner = planner_of(0.007)
    for _ in range(4):
        planner.costs.observe(1, 0, 0.001)
    assert total(planner.plan(prompts_of(7, left, arrived=0.0, answer=1), now=10.0)) == expected


@pytest.mark.parametrize(
    ("prompts", "now", "expected"),
    [
        ([(300, 300, 0.0), (100, 100, 1.0)], 1.0, (1, 0)),
        ([(300, 50, 0.0), (100, 100, 1.0)], 1.0, (0, 1)),
        ([(300, 300, 0.0), (100, 100, 5.9)], 6.0, (0, 1)),  # the first one would wait for more than twice 3 s
        ([(300, 300, 0.0), (300, 300, 0.1), (300, 300, 0.2)], 1.0, (0, 1, 2)),
        ([(300, 300, 0.2), (300, 300, 0.1), (300, 300, 0.0)], 1.0, (2, 1, 0)),
        # The second one may wait for 8 s.
        ([(100, 100, 0.0), (300, 300, 5.5), (50, 50, 9.0)], 9.0, (0, 2, 1)),
    ],
)
def test_the_shortest_prompt_is_read_first_unless_another_has_waited_too_long(
    prompts: list[tuple[int, int, float]], now: float, expected: tuple[int, ...]
) -> None:
    waiting = [Request(arrived, size, num_computed=size - left) for size, left, arrived in prompts]
    assert reading_order(waiting, 0.01, now) == [waiting[index] for index in expected]


@pytest.mark.parametrize("known", ["nothing", "decode", "prefill", "both"])
def test_any_state_has_a_plan(known: str) -> None:
    """Costs may be unknown for long: prompts of a few tokens say nothing about them."""
    draw = random.Random(known)
    for _ in range(300):
        planner = planner_of(share=draw.choice((None, 0.05, 0.7)))
        if known in ("decode", "both"):
            planner.costs.observe(draw.randint(1, 8), 0, draw.choice((1e-6, 0.01, 3.0)))
        if known in ("prefill", "both"):
            rows = draw.choice((16, 40, 300))
            planner.costs.observe(0, rows, rows * draw.choice((1e-7, 0.01, 1.0)))
        for _ in range(4):
            prompts = [
                Request(
                    draw.uniform(0.0, 10.0), size := draw.randint(1, 900), num_computed=draw.randrange(size)
                )
                for _ in range(draw.randint(0, 5))
            ]
            turn = [*streams_of(draw.randint(0, 9)), *prompts]
            if not turn:
                continue
            step = planner.plan(turn, now=10.0)
            assert 0 <= step.max_prefill <= 512
            assert step.reads or step.streams
            planner.observe(len(step.streams), total(step), draw.choice((1e-6, 0.01, 3.0)))
