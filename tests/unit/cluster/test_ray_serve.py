"""What is asked of Ray Serve, by something in its place; tests/cluster has the real one."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.cluster import ray_serve
from jan_serve.cluster.cluster_file import ClusterFile, Replicas
from jan_serve.cluster.ray_serve import ClusterFailed, deploy, end
from jan_serve.cluster.scaling import by_open_requests


class FakeServe:
    """fails: the errors of the next calls of `run` or `delete`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.options: dict[str, Any] = {}
        self.bound: Any = None
        self.fails: list[Exception] = []

    def deployment(self, **options: Any) -> Any:
        self.options = options
        return self.of

    def of(self, replica: type[Any]) -> FakeServe:
        return self

    def bind(self, content: dict[str, Any]) -> FakeServe:
        self.bound = content
        return self

    def start(self, **options: Any) -> None:
        assert options == {"proxy_location": "Disabled"}  # no request goes through Ray
        self.calls.append("start")

    def run(self, application: Any, **options: Any) -> None:
        assert options == {"name": "jan-serve", "route_prefix": None}
        self._call("run")

    def delete(self, name: str) -> None:
        self._call(f"delete {name}")

    def shutdown(self) -> None:
        self.calls.append("shutdown")

    def _call(self, what: str) -> None:
        self.calls.append(what)
        if self.fails:
            raise self.fails.pop(0)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> FakeServe:
    fake = FakeServe()
    monkeypatch.setattr(ray_serve, "_serve", lambda: fake)
    return fake


def test_a_fixed_number(serve: FakeServe) -> None:
    deploy(ClusterFile("http://a:1", replicas=Replicas(min=3, max=3, cpus=2, gpus=0.5, drain_s=60)))
    assert serve.calls == ["start", "run"]
    assert serve.options["num_replicas"] == 3
    assert serve.options["ray_actor_options"] == {"num_cpus": 2, "num_gpus": 0.5}
    assert serve.options["graceful_shutdown_timeout_s"] > 60  # never a stream that still has time
    assert serve.bound["proxy_url"] == "http://a:1"


def test_a_number_by_open_requests(serve: FakeServe) -> None:
    deploy(ClusterFile("http://a:1", replicas=Replicas(min=1, max=4, grow_s=0, shrink_s=5)))
    scaling = serve.options["autoscaling_config"]
    assert (scaling["min_replicas"], scaling["max_replicas"]) == (1, 4)
    assert (scaling["upscale_delay_s"], scaling["downscale_delay_s"]) == (0, 5)
    assert scaling["look_back_period_s"] > scaling["metrics_interval_s"] > 0  # equal ones are deprecated
    assert scaling["policy"] == {"policy_function": by_open_requests}
    assert "num_replicas" not in serve.options


def test_a_failed_start_is_told(serve: FakeServe) -> None:
    serve.fails = [RuntimeError("the server ended with status 2")]
    with pytest.raises(ClusterFailed, match="did not start: the server ended with status 2"):
        deploy(ClusterFile("http://a:1"))


def test_an_option_that_ray_refuses_is_told(serve: FakeServe, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**options: Any) -> Any:
        raise ValueError("The precision of num_cpus cannot go beyond 0.0001")

    monkeypatch.setattr(serve, "deployment", refuse)
    with pytest.raises(ClusterFailed, match="did not start: The precision"):
        deploy(ClusterFile("http://a:1", replicas=Replicas(cpus=0.00001)))


def test_the_end_waits_longer_than_ray_does(serve: FakeServe) -> None:
    serve.fails = [TimeoutError(), TimeoutError()]
    end(600)
    assert serve.calls == ["delete jan-serve"] * 3 + ["shutdown"]


def test_the_end_has_a_limit(serve: FakeServe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_serve, "_END_S", -1.0)
    serve.fails = [TimeoutError()]
    with pytest.raises(ClusterFailed, match=r"^the replicas did not end: not in time$"):
        end(0)
    assert "shutdown" not in serve.calls
