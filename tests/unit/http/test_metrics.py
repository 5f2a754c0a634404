"""The server's series, from records of requests and states of models."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.engine_stats import EngineStats
from jan_serve.core.models import ManagerSnapshot, ModelStatus
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.metrics import Metrics
from jan_serve.http.request_record import RequestRecord

READY = ModelStatus(
    name="a",
    path="/a",
    state="ready",
    leases=2,
    loads_total=3,
    stats=EngineStats(running=4, rss_bytes=5, generated_tokens_total=6),
)
FAILED = ModelStatus(name='b"', path="/b", state="failed", crashes_total=7, stalls_total=8)


def metrics(*models: ModelStatus) -> Metrics:
    return Metrics(lambda: ManagerSnapshot(draining=False, models=models), Lifecycle())


def samples(made: Metrics) -> dict[str, float]:
    lines = [line for line in made.page().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def record(**changes: Any) -> RequestRecord:
    made = RequestRecord("r")
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def test_requests_by_route_and_status() -> None:
    made = metrics()
    for route, status, cancelled in (
        ("/x", 200, False),
        ("/x", 200, False),
        ("/x", 404, False),
        ("/y", 200, True),
    ):
        made.end(route, status, record(cancelled=cancelled))
    page = samples(made)
    assert page['jan_serve_requests_total{route="/x",status="200"}'] == 2
    assert page['jan_serve_requests_total{route="/x",status="404"}'] == 1
    assert page['jan_serve_requests_total{route="/y",status="499"}'] == 1, "its client left during the answer"
    assert page["jan_serve_cancelled_total"] == 1
    assert page['jan_serve_request_duration_seconds_count{route="/x"}'] == 3


def test_tokens_and_times() -> None:
    made = metrics()
    answered = {"prompt_tokens": 7, "cached_tokens": 5, "completion_tokens": 8, "first_token_s": 0.3}
    made.end("/x", 200, record(**answered, queue_s=0.02, decode_s=0.5))
    made.end("/x", 200, record(prompt_tokens=1))
    page = samples(made)
    assert page["jan_serve_prompt_tokens_total"] == 8
    assert page["jan_serve_cached_tokens_total"] == 5
    assert page["jan_serve_completion_tokens_total"] == 8
    for name, value in (
        ("time_to_first_token_seconds", 0.3), ("queue_duration_seconds", 0.02), ("tokens_per_second", 16),
    ):  # fmt: skip
        assert (page[f"jan_serve_{name}_count"], page[f"jan_serve_{name}_sum"]) == (1, value)


@pytest.mark.parametrize("unfinished", [{"decode_s": 0.0, "completion_tokens": 3}, {"decode_s": 2.0}])
def test_without_tokens_or_time_there_is_no_speed(unfinished: dict[str, Any]) -> None:
    made = metrics()
    made.end("/x", 200, record(**unfinished))
    assert samples(made)["jan_serve_tokens_per_second_count"] == 0


def test_observers_of_dialects_see_the_same_status() -> None:
    made = metrics()
    seen: list[tuple[int, str]] = []
    made.observers.append(lambda status, observed: seen.append((status, observed.request_id)))
    made.end("/x", 200, record())
    made.end("/x", 200, record(cancelled=True))
    assert seen == [(200, "r"), (499, "r")]


def test_models_are_read_at_each_scrape() -> None:
    models = [READY]
    made = Metrics(lambda: ManagerSnapshot(draining=False, models=tuple(models)), Lifecycle())
    assert not any('model="b' in name for name in samples(made))
    models.append(FAILED)
    page = samples(made)
    expected = {
        'model_ready{model="a"}': 1, 'model_ready{model="b\\""}': 0, 'model_leases{model="a"}': 2,
        'model_loads_total{model="a"}': 3, 'model_crashes_total{model="b\\""}': 7,
        'model_stalls_total{model="b\\""}': 8, 'engine_running{model="a"}': 4,
        'engine_resident_bytes{model="a"}': 5, 'engine_generated_tokens_total{model="a"}': 6,
    }  # fmt: skip
    assert {name: page[f"jan_serve_{name}"] for name in expected} == expected
    assert page["jan_serve_open_requests"] == 0
