"""The nodes of a fleet: models, roles, restarts."""

from __future__ import annotations

from random import Random

import pytest

from jan_serve.errors import ModelNotFound, Unavailable
from jan_serve.fleet.assignment import Outcome
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Role
from tests.unit.fleet.support import fleet_of


def test_unknown_models_and_roles_without_nodes() -> None:
    fleet = fleet_of(1)
    with pytest.raises(ModelNotFound):
        fleet.assign("other", now=0.0)
    with pytest.raises(Unavailable, match="No prefill node"):
        fleet.assign("m", now=0.0, role=Role.PREFILL)
    with pytest.raises(Unavailable, match="proxy-url"):
        Fleet("prefix", Random(1)).assign(None, now=0.0)


def test_a_renewed_node_changes_models_and_role_and_keeps_its_counts() -> None:
    fleet = fleet_of(2)
    assignment = fleet.assign("m", now=0.0)
    node = assignment.node
    assert fleet.add(node.url, Role.HYBRID, ["n", "n"], 2.0, 1.0) is node
    assert (node.models, node.in_flight, node.speed) == (("n",), 1, 2.0)
    assert fleet.choose("n", now=0.0) is node
    assert fleet.choose("m", now=0.0) is not node
    fleet.add(node.url, Role.DECODE, ["n"], None, 1.0)
    assert fleet.choose("n", now=0.0, role=Role.DECODE) is node
    assert sorted(fleet.models(0.0)) == ["m", "n"]
    fleet.remove(node.url)
    assert fleet.models(0.0) == ["m"]
    assignment.end(Outcome.DONE, 2.0)


def test_an_alias_finds_a_node_and_is_no_model_of_its_own() -> None:
    fleet = fleet_of(2)
    node = next(iter(fleet))
    fleet.add(node.url, Role.HYBRID, ["m"], None, 0.0, aliases=["nick", "m", "nick"])
    assert fleet.choose("nick", now=0.0) is node
    assert fleet.models(0.0) == ["m"]
    with pytest.raises(ModelNotFound) as missing:
        fleet.choose("nobody", now=0.0)
    assert "nick" not in str(missing.value)
    fleet.add(node.url, Role.HYBRID, ["m"], None, 0.0)
    assert not fleet.has_model("nick")
    fleet.add(node.url, Role.DECODE, ["m"], None, 0.0, aliases=["nick"])
    fleet.remove(node.url)
    assert not fleet.has_model("nick")


@pytest.mark.parametrize(
    ("first", "second", "is_new"),
    [
        ((1, 10.0), (1, 20.0), False),
        ((1, 10.0), (2, 1.0), True),
        ((1, 10.0), (1, 3.0), True),
        ((1, 1000.0), (1, 990.0), False),  # a clock that was set back
        ((None, None), (1, 1.0), False),
    ],
)
def test_a_restarted_server_is_noticed(
    first: tuple[int | None, float | None], second: tuple[int | None, float | None], is_new: bool
) -> None:
    fleet = fleet_of(1)
    node = next(iter(fleet))
    fleet.note_start(node, *first, now=100.0)
    cache = node.cache
    assert fleet.note_start(node, *second, now=105.0) == is_new
    assert (node.cache is not cache) == is_new
