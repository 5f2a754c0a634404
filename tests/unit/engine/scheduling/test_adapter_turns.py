"""Sets of adapters take turns."""

from __future__ import annotations

from jan_serve.engine.scheduling.adapter_turns import AdapterTurns


def turns_of(turns: AdapterTurns[str], running: list[str], times: list[float]) -> str:
    return "".join(turns.take(running, now) for now in times)


def test_one_set_has_every_step() -> None:
    assert turns_of(AdapterTurns(1.0), ["a"], [0, 1, 2, 3]) == "aaaa"


def test_a_turn_lasts_a_slice_and_then_the_next_has_its_own() -> None:
    times = [step / 2 for step in range(12)]
    assert turns_of(AdapterTurns(1.0), ["a", "b", "c"], times) == "aabbccaabbcc"


def test_a_long_step_is_a_turn() -> None:
    assert turns_of(AdapterTurns(1.0), ["a", "b"], [0, 5, 10, 15]) == "abab"


def test_a_newcomer_comes_next() -> None:
    turns: AdapterTurns[str] = AdapterTurns(1.0)
    assert turns_of(turns, ["a", "b"], [0, 1, 2, 3]) == "abab"
    assert turns_of(turns, ["a", "b", "n"], [3.5, 4, 5, 6, 7]) == "bnabn"


def test_whoever_ends_gives_up_the_turn() -> None:
    turns: AdapterTurns[str] = AdapterTurns(1.0)
    assert turns_of(turns, ["a", "b"], [0, 0.1]) == "aa"
    assert turns_of(turns, ["b", "c"], [0.2, 0.3]) == "bb"


def test_no_set_waits_longer_than_a_slice_of_each_other() -> None:
    turns: AdapterTurns[int] = AdapterTurns(1.0)
    last = dict.fromkeys(range(5), 0.0)
    for step in range(200):
        now = step * 0.3
        key = turns.take(list(last), now)
        last[key] = now
        assert all(now - served <= 4 * (1.0 + 0.3) + 0.3 for served in last.values())
