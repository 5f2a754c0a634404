"""`jan-serve service` with a fake systemctl that records calls, and the real command of its unit."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from jan_serve import __version__
from jan_serve.cli.errors import CommandError
from jan_serve.cli.main import main
from jan_serve.config import LoadedSettings
from jan_serve.core.measurements import SelfCheck
from jan_serve.store.measurements import SelfChecks
from tests.integration.cli.fake_systemctl import FakeSystemctl
from tests.support.deadline import deadline
from tests.support.gguf.models import model_folder, tiny_llama
from tests.support.servers.served import running

__all__ = ["model_folder", "tiny_llama"]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's"),
]

COMMAND = (sys.executable, "-P", "-m", "jan_serve", "service")


@dataclass(frozen=True)
class Result:
    """The end of a command."""

    returncode: int
    stdout: str
    stderr: str


class Machine:
    """A user's home and a systemctl, for commands in this process; `variables` is for other processes."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self.home = folder / "hôme of ada"
        self.config = self.home / ".config" / "jan-serve" / "config.toml"
        self.units = self.home / ".config" / "systemd" / "user"
        self.config.parent.mkdir(parents=True)
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        self.config.write_text(f"port = {self.port}\n", encoding="utf-8")
        self.systemctl = FakeSystemctl(folder / "bin", self.units)
        self._patch = patch
        self._capture = capture
        for name in [name for name in os.environ if name.startswith("XDG_")]:
            patch.delenv(name)
        patch.setenv("HOME", str(self.home))
        patch.setenv("PATH", f"{self.systemctl.folder}{os.pathsep}{os.environ['PATH']}")
        patch.setattr(
            "jan_serve.cli.commands.servers.service.builtin_model", lambda: None
        )  # nothing to check a version with
        self.variables = dict(os.environ)

    def run(self, *words: str, **variables: str) -> Result:
        self._capture.readouterr()
        with self._patch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            status = main(["service", *words])
        captured = self._capture.readouterr()
        return Result(status, captured.out, captured.err)

    def files(self) -> list[str]:
        """The files in the home except the configuration."""
        found = [path for path in self.home.rglob("*") if path.is_file() and path != self.config]
        return sorted(str(path.relative_to(self.home)) for path in found)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    """A user who never had a service."""
    return Machine(tmp_path, monkeypatch, capsys)


def test_from_install_to_uninstall(machine: Machine) -> None:
    before = machine.run("status")
    assert (before.returncode, before.stdout) == (1, "")
    assert "No jan-serve service is installed for this user. `jan-serve service install`" in before.stderr
    done = machine.run("install")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"http://127.0.0.1:{machine.port}" in done.stderr
    assert machine.systemctl.calls() == [
        "--user disable --now jan-serve.socket jan-serve.service",
        "--user daemon-reload",
        "--user enable --now jan-serve.service",
    ]
    assert machine.files() == [".config/systemd/user/jan-serve.service"]

    again = machine.run("install")
    assert again.returncode == 0
    assert machine.systemctl.calls() == ["--user daemon-reload", "--user enable --now jan-serve.service"]

    status = json.loads(machine.run("status", "--json").stdout)
    assert (status["installed"], status["running"], status["start"]) == (True, True, "at-login")
    assert status["config_file"] == str(machine.config)

    for action in ("restart", "stop", "start"):
        assert machine.run(action).returncode == 0
        assert machine.systemctl.calls() == [f"--user {action} jan-serve.service"]

    assert machine.run("uninstall").returncode == 0
    assert machine.files() == []
    assert machine.run("uninstall").returncode == 0
    stopped = machine.run("stop")
    assert stopped.returncode == 1
    assert "no jan-serve service is installed for this user" in stopped.stderr


def test_a_version_that_has_not_run_here_is_checked_before_the_restart(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Path] = []

    def check(loaded: LoadedSettings) -> SelfCheck:
        ran.append(loaded.settings.data_dir)
        result = SelfCheck(
            version=__version__, llama_cpp="1", at=1.0, answers={}, prompt_per_s=1.0, tokens_per_s=1.0,
            devices={}, free_bytes=1, findings=("It writes slower.",),
        )  # fmt: skip
        SelfChecks(loaded.settings.data_dir).put(result)
        return result

    monkeypatch.setattr("jan_serve.cli.commands.servers.service.builtin_model", lambda: Path("any"))
    monkeypatch.setattr("jan_serve.cli.commands.servers.service.run_check", check)
    assert machine.run("restart").returncode == 1
    assert ran == [], "there is no service to restart"
    machine.run("install")
    told = [machine.run("restart") for _ in range(2)]
    assert [each.returncode for each in told] == [0, 0]
    assert ["It writes slower." in each.stderr for each in told] == [True, False]
    assert len(ran) == 1

    def fails(loaded: LoadedSettings) -> SelfCheck:
        raise CommandError("no worker starts")

    monkeypatch.setattr("jan_serve.cli.commands.servers.service.run_check", fails)
    monkeypatch.setattr("jan_serve.cli.commands.servers.service.__version__", "99.0")
    machine.systemctl.calls()
    failed = machine.run("restart")
    assert (failed.returncode, "no worker starts" in failed.stderr) == (0, True)
    assert machine.systemctl.calls() == ["--user restart jan-serve.service"]


def test_from_one_kind_of_start_to_the_other(machine: Machine) -> None:
    machine.run("install", "--on-demand")
    assert machine.files() == [
        ".config/systemd/user/jan-serve.service",
        ".config/systemd/user/jan-serve.socket",
    ]
    assert machine.systemctl.calls()[-1] == "--user enable --now jan-serve.socket"
    status = machine.run("status", "--json")
    assert (json.loads(status.stdout)["start"], status.returncode) == ("on-demand", 0)
    machine.run("stop")
    assert machine.systemctl.calls() == ["--user stop jan-serve.socket jan-serve.service"]
    machine.run("install", "--at-login")
    assert machine.files() == [".config/systemd/user/jan-serve.service"]
    assert machine.systemctl.calls()[0] == "--user disable --now jan-serve.socket jan-serve.service"


def test_a_dry_run_changes_nothing(machine: Machine) -> None:
    done = machine.run("install", "--on-demand", "--dry-run")
    assert f"ListenStream=127.0.0.1:{machine.port}" in done.stdout
    assert "systemctl --user enable --now jan-serve.socket" in done.stdout
    assert (machine.files(), machine.systemctl.calls()) == ([], [])


@pytest.mark.parametrize(
    ("words", "variables", "message"),
    [
        (("--at-login", "--on-demand"), {}, "exclude each other"),
        ((), {"JAN_SERVE_PORT": "4000"}, "JAN_SERVE_PORT: the service has no variables"),
        (("--config", "absent.toml"), {}, "there is no configuration file"),
    ],
)
def test_unsupported_settings_are_rejected(
    machine: Machine, words: tuple[str, ...], variables: dict[str, str], message: str
) -> None:
    done = machine.run("install", *words, **variables)
    assert done.returncode == 2
    assert message in done.stderr
    assert (machine.files(), machine.systemctl.calls()) == ([], [])


def test_a_machine_without_systemd(machine: Machine) -> None:
    done = machine.run("install", PATH="/nonexistent")
    assert done.returncode == 1
    assert "no systemd" in done.stderr


def test_a_service_that_does_not_start(machine: Machine) -> None:
    machine.systemctl.refuse("enable")
    done = machine.run("install")
    assert done.returncode == 1
    assert "Job for jan-serve.service failed." in done.stderr
    assert "jan-serve service logs" in done.stderr


def test_a_port_that_a_server_has(machine: Machine, tmp_path: Path, tiny_llama: Path) -> None:
    command = [*COMMAND[:-1], "serve", "--model", str(tiny_llama)]
    with running(tmp_path, command, machine.variables) as server:
        server.url()
        done = machine.run("install")
        assert done.returncode == 1
        assert f"jan-serve is already running on port {machine.port}" in done.stderr
        assert machine.files() == [name for name in machine.files() if "systemd" not in name]


def health(port: int) -> dict[str, object]:
    """The answer of /health."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20) as response:
        return json.load(response)


def test_what_the_unit_starts(machine: Machine, tmp_path: Path, tiny_llama: Path) -> None:
    machine.config.write_text(f"port = {machine.port}\nmodel = '{tiny_llama}'\n", encoding="utf-8")
    machine.run("install")
    unit = (machine.units / "jan-serve.service").read_text(encoding="utf-8")
    (line,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    command = line.removeprefix("ExecStart=").split()
    assert command == [*COMMAND, "run"]
    with running(tmp_path, command, machine.variables) as server:
        server.url()
        assert health(machine.port)["status"] == "ok"
        status = json.loads(machine.run("status", "--json").stdout)
        assert (status["pid"], status["health"]) == (server.process.pid, "ready")
        assert 10_000_000 < status["memory_bytes"] < 2_000_000_000
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, env=machine.variables)
        assert second.returncode == 2
        assert "already running" in second.stderr

        with subprocess.Popen(
            [*COMMAND, "logs", "-f"], env=machine.variables, stdout=subprocess.PIPE, text=True
        ) as follower:
            assert follower.stdout is not None
            with deadline(follower):
                assert "jan_serve" in follower.stdout.readline()
                server.process.send_signal(signal.SIGTERM)
                assert server.wait() == 0
                assert any("stopping: running requests have" in line for line in follower.stdout)
            follower.terminate()


def test_a_log_that_is_not_there_yet(machine: Machine) -> None:
    done = machine.run("logs")
    assert (done.returncode, done.stdout) == (0, "")
    assert "no lines yet" in done.stderr


def test_errors_before_the_log_go_to_standard_error(machine: Machine) -> None:
    machine.config.write_text("port = 'many'\n", encoding="utf-8")
    done = machine.run("run")
    assert done.returncode == 2
    assert f"{machine.config}:1: port" in done.stderr
