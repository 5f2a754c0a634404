"""The decisions under load and failure, on the virtual clock of the benchmark's simulation."""

from __future__ import annotations

import pytest

from benchmarks.proxy.simulate import OURS, SCENARIOS, USUAL, run_one

NUMBERS = {scenario.name: number for number, scenario in enumerate(SCENARIOS)}


def figures(name: str, who: str = OURS) -> dict[str, float]:
    return run_one(NUMBERS[name], who, 1, True)


@pytest.mark.parametrize(
    "name", ["8 mixed machines", "100 desktops", "100 desktops, open loop", "agents, 50 turns"]
)
def test_prompts_are_found_again_and_answers_begin_sooner_than_with_the_fewest_requests(name: str) -> None:
    ours, usual = figures(name), figures(name, USUAL)
    assert ours["hit_rate"] >= 0.85
    assert ours["p95_s"] <= usual["p95_s"]
    assert ours["p50_s"] <= usual["p50_s"]


def test_long_conversations_are_spread_by_the_room_that_they_need() -> None:
    """By waiting time alone, 0.87 is found again."""
    assert figures("agents, 50 turns")["hit_rate"] >= 0.9


def test_prompts_that_share_nothing_are_spread_as_well_as_by_the_fewest_requests() -> None:
    ours, usual = figures("unrelated prompts"), figures("unrelated prompts", USUAL)
    assert ours["p95_s"] <= 1.1 * usual["p95_s"]
    assert ours["done"] >= 0.98 * usual["done"]


@pytest.mark.parametrize(
    "name",
    [
        "rolling restart of all",
        "1 of 100 dies",
        "10 of 100 die",
        "50 of 100 die",
        "a node comes and goes",
        "a black hole",
    ],
)
def test_no_request_fails_before_its_answer_has_begun(name: str) -> None:
    ours = figures(name)
    assert ours["failed"] == 0
    assert ours["hit_rate"] > 0.7


def test_a_restart_of_all_costs_second_attempts_only() -> None:
    assert figures("rolling restart of all")["retried"] > 0


def test_a_slow_node_slows_few() -> None:
    assert figures("a node 10 times slower")["p95_s"] < figures("a node 10 times slower", USUAL)["p95_s"]
