"""Turns among clients."""

from __future__ import annotations

from jan_serve.engine.client_turns import ClientTurns


def turns_of(*items: tuple[str, int]) -> ClientTurns[int]:
    turns = ClientTurns[int]()
    for client, item in items:
        turns.put(client, item)
    return turns


def test_clients_alternate_and_items_of_one_are_in_order() -> None:
    turns = turns_of(("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6))
    assert [turns.take() for _ in range(6)] == [1, 4, 5, 2, 6, 3]
    assert not turns


def test_what_comes_back_is_behind_the_other_clients() -> None:
    turns = turns_of(("a", 1), ("b", 2))
    taken: list[int] = []
    for _ in range(4):
        taken.append(turns.take())
        turns.put("a" if taken[-1] == 1 else "b", taken[-1])
    assert taken == [1, 2, 1, 2]


def test_dropped_items_leave_no_client_behind() -> None:
    turns = turns_of(("a", 1), ("b", 2), ("b", 3))
    turns.drop(lambda item: item in (1, 3))
    assert turns.clients == {"b"}
    assert turns.take() == 2
