"""How the health answers of nodes are read."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.fleet.node import NodeState
from jan_serve.proxy.probes import condition_of, is_model_name
from jan_serve.proxy.request_facts import MAX_MODEL
from jan_serve.proxy.upstream.connection import NodeFailure


@pytest.mark.parametrize(
    ("status", "content", "state"),
    [
        (200, {"state": "ready"}, NodeState.HEALTHY),
        (200, "", NodeState.HEALTHY),
        (200, None, NodeState.HEALTHY),
        (404, {"error": "x"}, NodeState.HEALTHY),
        (405, None, NodeState.HEALTHY),
        (200, {"status": "sleeping"}, NodeState.SLEEPING),
        (200, {"state": "asleep", "status": "ok"}, NodeState.SLEEPING),
        (503, {"state": "asleep"}, NodeState.SLEEPING),
        (503, {"state": "draining"}, NodeState.DRAINING),
        (503, None, NodeState.DRAINING),
        (503, {"state": ["x"]}, NodeState.DRAINING),
    ],
)
def test_states(status: int, content: Any, state: NodeState) -> None:
    assert condition_of(status, content).state is state


@pytest.mark.parametrize(("status", "words"), [(401, "--node-key"), (500, "status 500"), (502, "status 502")])
def test_answers_that_are_failures(status: int, words: str) -> None:
    with pytest.raises(NodeFailure, match=words):
        condition_of(status, {})


def test_the_reason_is_the_nodes_word_of_bounded_length() -> None:
    assert condition_of(503, {"state": "draining"}).reason == "it says that it is draining"
    assert condition_of(503, {}).reason == "it says that it is busy"
    assert len(condition_of(503, {"state": "x" * 1000}).reason) < 80


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ({"pid": 12, "uptime_s": 3.5, "open_requests": 2}, (12, 3.5, 2)),
        ({"pid": "12", "uptime_s": "3", "open_requests": "2"}, (None, None, None)),
        ({"open_requests": -1}, (None, None, None)),
        ({"open_requests": 1 << 20}, (None, None, None)),
        ({"pid": True, "uptime_s": False, "open_requests": True}, (None, None, None)),
        ({"uptime_s": 10**400}, (None, None, None)),
        ({"uptime_s": float("inf")}, (None, None, None)),
        ([1], (None, None, None)),
    ],
)
def test_figures_that_are_none_are_left_out(
    content: Any, facts: tuple[int | None, float | None, int | None]
) -> None:
    found = condition_of(200, content)
    assert (found.pid, found.uptime_s, found.open_requests) == facts


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("org/model:Q4", True), ("é", True), ("x" * MAX_MODEL, True), ("x" * (MAX_MODEL + 1), False), ("", False),
        ("a\nb", False), ("a\x1b[31m", False), (1, False), (None, False),
    ],
)  # fmt: skip
def test_names_of_models(name: object, expected: bool) -> None:
    assert is_model_name(name) is expected
