"""How many servers open requests need."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from jan_serve.cluster.scaling import by_open_requests, wanted_replicas


@pytest.mark.parametrize(
    ("open_requests", "slots", "wanted"),
    [(0, 4, 1), (1, 4, 1), (2.8, 4, 1), (2.9, 4, 2), (5.6, 4, 2), (6, 4, 3), (100, 1, 143), (0.01, 0.5, 1)],
)
def test_a_part_of_the_slots_stays_free(open_requests: float, slots: float, wanted: int) -> None:
    assert wanted_replicas(open_requests, slots) == wanted


def test_the_policy_adds_up_what_replicas_report() -> None:
    metrics = {"open_requests": {"a": 5.0, "b": 1.0}, "slots": {"a": 4.0, "b": 4.0}}
    assert by_open_requests(SimpleNamespace(aggregated_metrics=metrics, target_num_replicas=1)) == (3, {})


@pytest.mark.parametrize(
    "metrics", [None, {}, {"open_requests": {"a": 9.0}}, {"slots": {}}, {"slots": {"a": 0.0}}]
)
def test_without_reports_the_number_stays(metrics: dict[str, dict[str, float]] | None) -> None:
    assert by_open_requests(SimpleNamespace(aggregated_metrics=metrics, target_num_replicas=7)) == (7, {})
