"""What a step computes: prompts, streams or both. The whole policy is in test_policy_simulated."""

from __future__ import annotations

import random

import pytest

from jan_serve.engine.scheduling.prefill_costs import TILE
from jan_serve.engine.scheduling.prompt_groups import Group
from jan_serve.engine.scheduling.step_costs import StepCosts
from jan_serve.engine.scheduling.step_planner import (
    BEGUN_TOKENS,
    JOIN_S,
    MAX_SHARE,
    MIN_TOKENS,
    RUN_STEPS,
    SOON_S,
    Balance,
    Prompt,
    StepPlan,
    Streams,
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


def prompts_of(count: int, left: int, *, arrived: float = 10.0, answer: float = float("inf")) -> list[Prompt]:
    return [Prompt(key, left, left, arrived=arrived, answer=answer) for key in range(count)]


def plan(
    costs: StepCosts,
    prompts: int = 1,
    streams: int = 1,
    balance: Balance = Balance(),  # noqa: B008  frozen
    *,
    left: int = 6000,
    longest: int = 100,
    arrived: float = 6.0,
    share: float | None = None,
    chunk: int = 512,
) -> StepPlan:
    return plan_step(
        prompts_of(prompts, left, arrived=arrived),
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
        (0.004, 0.024, 7, 320),  # as PAUSE_S allows, and not 5 s
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
    assert plan(costs, 3, balance=Balance(0.5)).prefill_tokens == 192, "whole parts of the 219 that fit"
    found = plan(costs, 3, balance=Balance(1.2))
    assert (found.prefill_tokens, found.decodes, found.reads) == (0, True, ())
    assert plan(costs, 3, balance=Balance(1.2), left=9).prefill_tokens > 0, "the rest of all prompts fits"


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
    ("left", "prompts", "streams", "longest", "arrived", "answer", "joins"),
    [
        (60, 7, 1, 2, 1.0, 64, True),
        (60, 7, 1, BEGUN_TOKENS, 1.0, 64, False),  # the stream has more than just begun
        (60, 7, 1, 2, 6.0, 64, False),  # the prompts arrived after it had
        (1100, 1, 1, 2, 1.0, 10_000, False),  # 13 s, which is more than JOIN_S
        (900, 1, 1, 2, 1.0, 10_000, True),
        (900, 1, 4, 2, 1.0, 60, False),  # the stream ends sooner than the prompt is read
        (400, 4, 4, 2, 1.0, 10_000, False),  # 19 s
    ],
)
def test_streams_that_have_just_begun_wait_for_prompts_that_arrived_with_them(
    left: int, prompts: int, streams: int, longest: int, arrived: float, answer: int, *, joins: bool
) -> None:
    costs = costs_of(0.012, 0.024)
    costs.observe(8, 0, 0.1)
    found = plan_step(
        prompts_of(prompts, left, arrived=arrived, answer=answer),
        Streams(streams, longest, began=5.0, left=answer),
        Balance(1.3, 0.03),
        costs,
        now=10.0,
        chunk=512,
    )
    assert found.group.joins == joins
    assert found.decodes != joins, "a pause follows each token"


def test_pauses_of_streams_that_wait_remain_rare() -> None:
    """700 tokens take 8.4 s, which are six pauses for each of the streams, of 256 assumed tokens each."""
    costs = costs_of(0.012, 0.024)
    costs.observe(8, 0, 0.025)
    for streams, joins in ((1, True), (4, True)):
        found = plan_step(
            prompts_of(1, 700, arrived=1.0),
            Streams(streams, 2, began=5.0),
            Balance(),
            costs,
            now=10.0,
            chunk=512,
        )
        assert found.group.joins == joins
    assert JOIN_S > 700 * 0.012
    short = prompts_of(1, 700, arrived=1.0, answer=64)
    for streams, joins in ((1, False), (4, False)):
        found = plan_step(
            short, Streams(streams, 2, began=5.0, left=64), Balance(), costs, now=10.0, chunk=512
        )
        assert found.group.joins == joins


@pytest.mark.parametrize(("left", "reads"), [(290, False), (310, True)])
def test_streams_that_end_before_a_prompt_could_be_read_do_so_first(left: int, *, reads: bool) -> None:
    """At 24 ms a token. The prompt takes 7.2 s, whatever the order, and pauses would help nobody."""
    streams = Streams(1, 100, began=5.0, left=left)
    costs = costs_of(0.012, 0.024)
    assert _prefill(prompts_of(1, 600), streams, costs) == reads
    assert _prefill(prompts_of(1, 30), streams, costs), "this one is read sooner"


def _prefill(prompts: list[Prompt], streams: Streams, costs: StepCosts) -> bool:
    return plan_step(prompts, streams, Balance(), costs, now=10.0, chunk=512).prefill_tokens > 0


def steps(prompts: list[Prompt], *, chunk: int = 512) -> list[list[int]]:
    """Tokens of each prompt in each step without streams, until all are read."""
    found: list[list[int]] = []
    group: Group | None = None
    while any(prompt.left for prompt in prompts):
        waiting = [prompt for prompt in prompts if prompt.left]
        costs = costs_of(0.004, 0.013)
        costs.observe(4, 0, 0.038)
        costs.observe(8, 0, 0.076)
        step = plan_step(waiting, Streams(), Balance(), costs, now=100.0, chunk=chunk, group=group)
        group, room = step.group, step.prefill_tokens
        computed = [0] * len(prompts)
        for index, most in step.reads:
            computed[waiting[index].key] = min(most, room)  # type: ignore[index]
            room -= computed[waiting[index].key]  # type: ignore[index]
        prompts = [
            Prompt(each.key, each.size, each.left - tokens, arrived=each.arrived, answer=each.answer)
            for each, tokens in zip(prompts, computed, strict=True)
        ]
        found.append(computed)
    return found


def test_the_prompts_of_a_group_end_in_one_step() -> None:
    """What other prompts read beside them fills the parts up, and does not end."""
    found = steps(prompts_of(8, 300, arrived=0.0, answer=64))
    ends = [max(index for index, step in enumerate(found) if step[number]) for number in range(8)]
    assert ends == [ends[0]] * 4 + [ends[4]] * 4
    assert ends[0] < ends[4]
    assert [sum(column) for column in zip(*found, strict=True)] == [300] * 8
    assert all(sum(step) % 32 == 0 for step in found[:-1])


def test_a_prompt_that_lacks_one_token_ends_with_any_group() -> None:
    found = steps([*prompts_of(1, 300, answer=1), Prompt(1, 300, 1, arrived=0.0, answer=1)])
    assert found[0][1] == 1


def test_an_arrival_changes_the_group_until_a_member_is_read() -> None:
    costs = costs_of(0.004, 0.024)
    costs.observe(8, 0, 0.03)
    first = prompts_of(2, 300, arrived=0.0, answer=64)
    group = plan_step(first, Streams(), Balance(), costs, now=1.0, chunk=512).group
    assert group.members == {0, 1}
    late = Prompt(2, 300, 300, arrived=1.0, answer=64)
    for left, expected in ((2, {0, 1, 2}), (1, {0, 1})):
        begun = [Prompt(0, 300, left, answer=64), first[1], late]
        found = plan_step(begun, Streams(), Balance(), costs, now=1.5, chunk=512, group=group)
        assert found.group.members == expected


@pytest.mark.parametrize(("ago", "expected"), [(0.0, 64), (0.5, 192), (1.0, 320), (9.0, 512)])
def test_the_longer_nobody_arrived_the_longer_a_step_without_streams_is(ago: float, expected: int) -> None:
    found = plan(costs_of(0.0075), 2, streams=0, arrived=10.0 - ago)
    assert found.prefill_tokens == expected


def test_a_step_without_streams_is_short_while_another_model_waits_for_the_cores() -> None:
    prompt = Prompt(0, 2000, 2000, arrived=0.0)
    found = plan_step([prompt], Streams(), Balance(), costs_of(0.0075), now=90.0, chunk=512, alone_s=SOON_S)
    assert found.prefill_tokens == 64


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


@pytest.mark.parametrize(("token_s", "expected"), [(0.001, 96), (0.0015, TILE), (0.002, 0)])
def test_they_do_not_if_a_token_of_a_stream_would_wait_for_more_than_two_steps(
    token_s: float, expected: int
) -> None:
    costs = StepCosts()
    for rows in (256, 256, TILE, 32):
        costs.observe(0, rows, rows * token_s)
    costs.observe(1, 0, 0.1)
    for rows in (256, TILE, 32):
        costs.observe(1, rows, 0.7 * (rows * token_s + 0.1))
    found = plan(costs, 7)
    assert (found.prefill_tokens if found.decodes else 0) == expected


def test_they_do_not_if_the_streams_cost_too_little_to_matter() -> None:
    assert not plan(costs_of(0.012, 0.024)).decodes


def test_a_slow_machine_still_reads() -> None:
    costs = costs_of(1.0, 2.0)
    assert plan(costs).prefill_tokens == MIN_TOKENS


@pytest.mark.parametrize(("left", "expected"), [(300, 320), (100, 128), (150, 160), (40, 64), (400, 320)])
def test_a_step_without_streams_ends_with_the_group(left: int, expected: int) -> None:
    """A group of one, since an answer has one token."""
    prompts = prompts_of(7, left, arrived=0.0, answer=1)
    found = plan_step(prompts, Streams(), Balance(), costs_of(0.012, 0.001), now=10.0, chunk=512)
    assert found.prefill_tokens == expected


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
    waiting = [Prompt(key, size, left, arrived=arrived) for key, (size, left, arrived) in enumerate(prompts)]
    assert reading_order(waiting, 0.01, now) == expected


def test_the_balance_starts_a_new_pause_after_the_streams_ran() -> None:
    balance = Balance().after(1, 0.0, 0.8).after(1, 0.0, 0.3)
    assert balance == Balance(1.1, 0.0)
    assert balance.after(1, 0.1, 0.0).after(1, 0.1, 0.0) == Balance(1.1, 0.2)
    assert balance.after(1, 0.1, 0.0).after(1, 0.0, 0.5) == Balance(0.5, 0.0)
    assert balance.after(1, 0.02, 0.4).after(1, 0.02, 0.3) == Balance(0.3, 0.02), "mixed steps pause little"
    assert balance.after(0, 0.0, 0.5) == Balance(), "no stream waits"


@pytest.mark.parametrize("known", ["nothing", "decode", "prefill", "both"])
def test_any_state_has_a_plan(known: str) -> None:
    """Costs may be unknown for long: prompts of a few tokens say nothing about them."""
    draw = random.Random(known)
    for _ in range(2_000):
        costs = StepCosts()
        if known in ("decode", "both"):
            costs.observe(draw.randint(1, 8), 0, draw.choice((1e-6, 0.01, 3.0)))
        if known in ("prefill", "both"):
            rows = draw.choice((16, 40, 300))
            costs.observe(0, rows, rows * draw.choice((1e-7, 0.01, 1.0)))
        prompts = [
            Prompt(key, size := draw.randint(1, 900), draw.randint(1, size), arrived=draw.uniform(0.0, 10.0))
            for key in range(draw.randint(0, 5))
        ]
        streams = Streams(count := draw.randint(0, 9), draw.randint(1, 900) if count else 0, began=5.0)
        balance = Balance(draw.choice((0.0, 0.1, 9.0)), draw.choice((0.0, 0.1, 9.0)))
        group = draw.choice((None, Group(frozenset({0, 1}), frozenset(range(5)), 2)))
        share = draw.choice((None, 0.05, 0.7))
        step = plan_step(
            prompts, streams, balance, costs, now=10.0, chunk=512, group=group, stream_share=share
        )
        assert 0 <= step.prefill_tokens <= 512
        if prompts:
            assert step.prefill_tokens or step.decodes
            assert step.prefill_tokens or streams.count
