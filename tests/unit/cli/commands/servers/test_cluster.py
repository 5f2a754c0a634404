"""`jan-serve cluster` before Ray is asked: what it refuses, and what it says then."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

from jan_serve.cli.commands.servers import cluster
from jan_serve.cli.main import main
from jan_serve.cluster import ray_serve
from jan_serve.cluster.cluster_file import ClusterFile, ClusterMachine
from jan_serve.cluster.head import ClusterRecord, RayHead, record_file, write_record
from tests.support.servers.fake_proxy import fake_proxy


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ray_serve.VARIABLES:
        monkeypatch.setenv(name, "")  # given back afterwards
    monkeypatch.setattr(cluster, "default_data_dir", lambda: tmp_path)
    monkeypatch.setattr(ray_serve, "ray_version", lambda: "2.60.0")
    monkeypatch.setattr(sys, "platform", "linux")
    return tmp_path


def cluster_file(folder: Path, text: str) -> str:
    path = folder / "cluster.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("text", [None, "wrong = 1"])
def test_a_wrong_file_says_what_belongs_into_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    path = str(tmp_path / "absent.toml") if text is None else cluster_file(tmp_path, text)
    assert main(["cluster", "up", path]) == 2
    err = capsys.readouterr().err
    assert path in err
    assert "jan-serve config" not in err
    assert "proxy_url" in err.splitlines()[-1]


@pytest.mark.parametrize("platform", ["darwin", "win32"])
@pytest.mark.parametrize("words", [["up", "cluster.toml"], ["status"], ["down"]])
def test_another_system_is_told_how_to_join(
    platform: str, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert main(["cluster", *words]) == 2
    shown = capsys.readouterr().err
    assert "Linux only" in shown
    assert "jan-serve serve --proxy-url URL" in shown


def test_without_ray_it_says_what_to_install(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_serve, "ray_version", lambda: None)
    assert main(["cluster", "up", cluster_file(home, 'proxy_url = "http://127.0.0.1:9"')]) == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert "scripts/install cluster" in shown
    assert "'FILE.whl[cluster]'" in shown


WRONG = [
    ("proxy_url = 1", "proxy_url"),
    ('proxy_url = "127.0.0.1:9"', "proxy_url"),
    ('proxy_url = "http://no.such.host.invalid:9"', "no way to the proxy"),
    ('proxy_url = "http://127.0.0.1:9"\nserve.n_ctxx = 1', "n_ctxx"),
    ('proxy_url = "http://127.0.0.1:9"\nserve.n_ctx = "many"', "n_ctx"),
]


@pytest.mark.parametrize(("text", "words"), WRONG)
def test_a_wrong_file_starts_nothing(
    home: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "up", cluster_file(home, text)]) == 2
    assert words in capsys.readouterr().err.replace("\n", " ")
    assert not record_file(home).exists()


def test_the_proxy_must_run_first(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", "up", cluster_file(home, 'proxy_url = "http://127.0.0.1:9"')]) == 3
    assert "127.0.0.1:9" in capsys.readouterr().err


def test_a_cluster_that_takes_everyone_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def takes_everyone(address: str) -> bool:
        return False

    monkeypatch.setattr(cluster.ray_head, "requires_token", takes_everyone)
    with fake_proxy() as proxy:
        text = f'proxy_url = "{proxy.url}"\nray_address = "10.0.0.2:6379"'
        assert main(["cluster", "up", cluster_file(home, text)]) == 1
    shown = capsys.readouterr().err.replace("\n", " ")
    assert "10.0.0.2:6379 takes everyone" in shown
    assert "RAY_AUTH_MODE=token" in shown


def test_how_to_join_is_told_before_the_servers_are_waited_for(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where machines are missing, the start lasts until they join."""
    shown: list[str] = []

    def requires_token(address: str) -> bool:
        return True

    def connected(address: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def machines() -> list[ClusterMachine]:
        return [ClusterMachine("a", "10.0.0.2", alive=True, cpus=4, gpus=0)]

    def deploy(file: ClusterFile) -> None:
        shown.append(capsys.readouterr().err.replace("\n", " "))

    monkeypatch.setattr(cluster.ray_head, "requires_token", requires_token)
    for fake in (connected, machines, deploy):
        monkeypatch.setattr(ray_serve, fake.__name__, fake)
    with fake_proxy() as proxy:
        text = f'proxy_url = "{proxy.url}"\nray_address = "10.0.0.2:6379"\nreplicas = {{min = 2, max = 2}}'
        assert main(["cluster", "up", cluster_file(home, text)]) == 0
    assert "room for 1 of 2 servers" in shown[0]
    assert "ray start --address=10.0.0.2:6379" in shown[0]
    assert "jan-serve serve --proxy-url URL" in shown[0]


@pytest.mark.parametrize("command", ["status", "down"])
def test_nothing_was_started_here(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cluster", command]) == 1
    assert "no cluster was started" in capsys.readouterr().err


def test_down_after_a_restart_of_the_machine_only_forgets(home: Path) -> None:
    """The head is gone, and with it what it ran."""
    gone = RayHead(1, 0.0)
    write_record(record_file(home), ClusterRecord("10.0.0.2:6379", ClusterFile("http://10.0.0.2:8000"), gone))
    assert main(["cluster", "down"]) == 0
    assert not record_file(home).exists()
