"""A replica and its process."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cluster import replica as child_module
from jan_serve.cluster import replica as replica_module
from jan_serve.cluster.replica import Child, ChildEnded, Replica, Unhealthy
from tests.integration.cluster.fake_replica import COMMAND
from tests.support.processes import alive, wait_until
from tests.support.servers.fake_proxy import FakeProxy, fake_proxy


@pytest.fixture
def proxy() -> Generator[FakeProxy]:
    with fake_proxy() as fake:
        yield fake


class Waits:
    """In place of sleeping: the proxy's next answers, in turn. `url` is known when the replica asks for the first."""

    def __init__(self, proxy: FakeProxy, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[Callable[[str], None]] = []
        self.count = 0
        self._url = ""
        url_of = replica_module.Child.url

        def remember(child: replica_module.Child) -> str:
            self._url = url_of(child)
            return self._url

        monkeypatch.setattr(replica_module.Child, "url", remember)

    def __call__(self, seconds: float) -> None:
        self.steps[self.count](self._url)
        self.count += 1


@pytest.fixture
def waits(proxy: FakeProxy, monkeypatch: pytest.MonkeyPatch) -> Waits:
    return Waits(proxy, monkeypatch)


def content(proxy: FakeProxy, folder: Path, **serve: Any) -> dict[str, Any]:
    replicas = {"drain_s": 60, "slots": 3}
    own = {"notes": str(folder), **serve}
    return {"proxy_url": proxy.url, "proxy_key": "KEY", "replicas": replicas, "serve": own}


def test_it_runs_when_the_proxy_would_send_requests(proxy: FakeProxy, waits: Waits, tmp_path: Path) -> None:
    waits.steps = [
        lambda url: setattr(proxy, "nodes", None),
        lambda url: proxy.show(url, routable=False),
        lambda url: proxy.show(url + "0"),
        lambda url: proxy.show(url + "/lmdeploy"),
    ]
    replica = Replica(content(proxy, tmp_path, open_requests=2), COMMAND, waits)
    assert waits.count == 4
    assert set(proxy.keys) == {"Bearer KEY"}
    replica.check_health()
    assert replica.record_autoscaling_stats() == {"open_requests": 2, "slots": 3}
    replica.__del__()
    assert (tmp_path / "ended").exists()
    with pytest.raises(Unhealthy):
        replica.check_health()


def test_a_server_that_ends_meanwhile_ends_the_wait(proxy: FakeProxy, tmp_path: Path) -> None:
    with pytest.raises(ChildEnded, match="the settings came"):
        Replica(content(proxy, tmp_path, fails=True), COMMAND)


def test_a_server_that_does_not_answer_is_ill(proxy: FakeProxy, waits: Waits, tmp_path: Path) -> None:
    waits.steps = [proxy.show]
    replica = Replica(content(proxy, tmp_path, silent=True), COMMAND, waits)
    with pytest.raises(Unhealthy, match="no answer"):
        replica.check_health()
    replica.__del__()


def settings(folder: Path, **more: object) -> dict[str, object]:
    return {"host": "127.0.0.1", "notes": str(folder), **more}


def test_it_ends_by_itself_when_asked(tmp_path: Path) -> None:
    child = Child(settings(tmp_path), COMMAND)
    assert child.url().startswith("http://127.0.0.1:")
    child.check()
    child.stop(60)
    assert (tmp_path / "ended").exists()
    child.stop(60)
    with pytest.raises(ChildEnded, match="status 0"):
        child.check()


def test_one_that_stays_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "_END_S", 0.05)
    child = Child(settings(tmp_path, stays=True), COMMAND)
    child.url()
    child.stop(0)
    assert not alive(child.pid)
    assert not (tmp_path / "ended").exists()


def test_a_failed_start_has_the_log_in_its_message(tmp_path: Path) -> None:
    child = Child(settings(tmp_path, fails=True), COMMAND)
    with pytest.raises(ChildEnded, match=r"status 4:\nthe settings came"):
        child.url()
    child.stop(0)


def test_it_gets_no_variable_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    child = Child(settings(tmp_path), COMMAND)
    child.url()
    wait_until((tmp_path / "variables").exists)
    child.stop(60)
    variables = json.loads((tmp_path / "variables").read_text(encoding="utf-8"))
    assert not {"RAY_AUTH_TOKEN", "OMP_NUM_THREADS"} & variables.keys()
    assert variables["CUDA_VISIBLE_DEVICES"] == "1"  # which accelerator Ray gave it
