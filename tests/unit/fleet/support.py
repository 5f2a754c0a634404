"""Fleets of equal healthy nodes, and a long prompt."""

from __future__ import annotations

from random import Random

from jan_serve.fleet.breaker import Breaker
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Node, NodeState, Role, WorkRate
from jan_serve.fleet.prefixes import PromptKeys, prompt_keys
from jan_serve.fleet.strategies import StrategyName

LONG = "some words that repeat " * 300


def node(number: int = 0) -> Node:
    return Node(f"http://n{number}", Role.HYBRID, (), None, Breaker(Random(1)), WorkRate())


def fleet_of(count: int, name: StrategyName = "prefix", speeds: tuple[float | None, ...] = ()) -> Fleet:
    fleet = Fleet(name, Random(5))
    for number in range(count):
        speed = speeds[number] if speeds else None
        found = fleet.add(f"http://n{number}", Role.HYBRID, ["m"], speed, 0.0)
        fleet.set_state(found, NodeState.HEALTHY)
    return fleet


def keys(text: str) -> PromptKeys:
    return prompt_keys(b"salt", "m", [text.encode()])
