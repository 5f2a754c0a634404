"""Bodies of `/nodes/*`: what they may say, and what a node's entry says."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from jan_serve.fleet.breaker import Breaker
from jan_serve.fleet.node import Node, Role, WorkRate
from jan_serve.http.errors import HttpError
from jan_serve.proxy.node_registry import read_node, read_url, status_body

URL = "http://10.0.0.9:8000"


def test_a_url_alone_is_a_node_to_ask() -> None:
    bodies: list[dict[str, Any]] = [{"url": URL}, {"url": URL, "status": None}, {"url": URL, "status": {}}]
    for body in bodies:
        found = read_node(body, None)
        assert (str(found.url), found.role, found.models, found.speed) == (URL, Role.HYBRID, (), None)


def test_what_a_server_registers_of_itself() -> None:
    status = {"role": 2, "models": ["a", "b", "a"], "speed": 3, "unfinished": 7, "latency": [1.0]}
    found = read_node({"url": URL, "status": status}, None)
    assert (found.role, found.models, found.speed) == (Role.PREFILL, ("a", "b"), 3.0)


def test_a_server_of_another_machine_is_not_on_this_one() -> None:
    with pytest.raises(HttpError, match="url") as caught:
        read_node({"url": "http://127.0.0.1:1"}, "10.0.0.7")
    assert caught.value.problem.status == 422


def test_a_server_on_every_address_is_where_its_call_came_from() -> None:
    assert read_url({"url": "http://0.0.0.0:8000"}, "10.0.0.7").host == "10.0.0.7"


@pytest.mark.parametrize(("speed", "shown"), [(None, None), (2.0, 2), (1.5, 1.5)])
def test_an_entry_has_lmdeploys_members(speed: float | None, shown: float | None) -> None:
    node = Node(URL, Role.DECODE, ("m",), speed, Breaker(Random(1)), WorkRate())
    node.in_flight = 2
    node.latencies.append(0.123456789)
    body = status_body(node)
    assert body == {"role": 3, "models": ["m"], "unfinished": 2, "latency": [0.123457], "speed": shown}
    assert type(body["speed"]) is type(shown)
