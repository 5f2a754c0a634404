"""The Ray head that `up` starts, with a program in place of Ray."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from jan_serve.cluster import head as head_module
from jan_serve.cluster.head import RayHead, is_running, make_token, requires_token, start_head, stop_head
from jan_serve.cluster.ray_serve import ClusterFailed
from tests.support.processes import alive, wait_until

# Notes its arguments and some variables. FAKE_RAY: how it behaves.
PROGRAM = """#!/usr/bin/env bash
echo "$* | $RAY_AUTH_MODE $RAY_USAGE_STATS_ENABLED ${RAY_AUTH_TOKEN:-none}" >>"$FAKE_NOTES"
case "$FAKE_RAY" in
    fails) echo "a first line"; echo "the port is taken" >&2; exit 1 ;;
    open) exit 0 ;;
    closed) echo "AuthenticationError: InvalidAuthToken" >&2; exit 1 ;;
    silent) exec sleep 600 ;;
esac
trap 'exit 0' TERM
sleep 600 & echo $! >"$FAKE_NOTES.child"
echo "Ray runtime started."
wait
"""


class FakeRay:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._notes = folder / "notes"
        self._patch = monkeypatch
        program = folder / "ray"
        program.write_text(PROGRAM, encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("FAKE_NOTES", str(self._notes))
        monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
        monkeypatch.setattr(head_module, "ray_program", lambda: str(program))
        self.behave("")

    def behave(self, how: str) -> None:
        self._patch.setenv("FAKE_RAY", how)

    @property
    def calls(self) -> list[str]:
        return self._notes.read_text(encoding="utf-8").splitlines()

    @property
    def child(self) -> int:
        return int(Path(f"{self._notes}.child").read_text(encoding="utf-8"))


@pytest.fixture
def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    for name in ("RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.delenv(name, raising=False)
    return FakeRay(tmp_path, monkeypatch)


def test_a_head_runs_until_it_is_stopped_with_all_that_it_started(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head_module, "_END_S", 0.2)  # what it started does not end by itself
    head = start_head("10.0.0.2", 6379, tmp_path / "logs" / "head.log")
    child = ray.child
    assert (tmp_path / "logs" / "head.log").stat().st_mode & 0o777 == 0o600
    assert is_running(head)
    assert alive(child)
    (call,) = ray.calls
    assert "--head --block --node-ip-address=10.0.0.2 --port=6379" in call
    assert "--include-dashboard=false --disable-usage-stats" in call
    assert call.endswith("| token 0 secret")
    stop_head(head)
    assert not is_running(head)
    wait_until(lambda: not alive(child))
    stop_head(head)


def test_another_process_of_the_same_number_is_left_alone() -> None:
    ours = psutil.Process()
    stop_head(RayHead(ours.pid, ours.create_time() - 1))
    assert not is_running(RayHead(ours.pid, ours.create_time() - 1))
    assert is_running(RayHead(ours.pid, ours.create_time()))


def test_a_failed_start_says_why(ray: FakeRay, tmp_path: Path) -> None:
    ray.behave("fails")
    with pytest.raises(ClusterFailed, match="the port is taken") as raised:
        start_head("10.0.0.2", 6379, tmp_path / "head.log")
    assert "head.log" in str(raised.value.next_step)


def test_a_start_that_takes_too_long_ends(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.behave("silent")
    monkeypatch.setattr(head_module, "START_S", 0.0)
    with pytest.raises(ClusterFailed, match="within"):
        start_head("10.0.0.2", 6379, tmp_path / "head.log")
    assert not [each for each in psutil.Process().children() if alive(each.pid) and "sleep" in each.name()]


@pytest.mark.parametrize(("how", "required"), [("open", False), ("closed", True)])
def test_a_cluster_without_tokens_is_known(ray: FakeRay, how: str, required: bool) -> None:
    ray.behave(how)
    assert requires_token("10.0.0.2:6379") is required
    (call,) = ray.calls
    assert call.startswith("health-check --address 10.0.0.2:6379 | disabled")
    assert call.endswith("none")  # the token does not go to a cluster that may be a stranger's
    assert os.environ["RAY_AUTH_TOKEN"] == "secret"


def test_no_cluster_at_the_address(ray: FakeRay) -> None:
    ray.behave("fails")
    with pytest.raises(ClusterFailed, match="no Ray cluster answers at 10"):
        requires_token("10.0.0.2:6379")


@pytest.mark.parametrize("ask", [make_token, partial(requires_token, "10.0.0.2:6379")])
def test_a_program_that_takes_too_long_is_a_failure(
    ray: FakeRay, ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    ray.behave("silent")
    monkeypatch.setattr(head_module, "START_S", 0.0)
    with pytest.raises(ClusterFailed, match="did not end within"):
        ask()


def test_a_token_that_cannot_be_made(ray: FakeRay) -> None:
    ray.behave("open")
    make_token()
    ray.behave("fails")
    with pytest.raises(ClusterFailed, match="the port is taken"):
        make_token()
