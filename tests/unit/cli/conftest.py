"""Commands in the test's process, against an application on a socket."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.main import main
from jan_serve.config import ServerAddress
from tests.support.servers.managed import add_model
from tests.support.servers.served_app import ServedApp, served_app


@dataclass(frozen=True)
class Ran:
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServedApp]:
    """Real routes with fake engines: the models `alpha`, `beta-7b`, a base model and one that cannot be loaded."""
    folder = tmp_path_factory.mktemp("served")
    for name in ("alpha", "beta-7b", "fail-load", "no-template"):
        add_model(folder, name)
    with served_app(folder, model="alpha") as served:
        yield served


@pytest.fixture
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file of the test."""
    config = tmp_path / "config.toml"
    config.write_text('data_dir = "data"\n')
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(config))
    return config


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, own_settings: Path) -> Run:
    """Runs a command line; `stdin` is piped in."""

    def run_words(*words: str, stdin: bytes = b"") -> Ran:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        status = main(list(words))
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run_words


@pytest.fixture
def ask(run: Run, server: ServedApp, monkeypatch: pytest.MonkeyPatch) -> Run:
    """As `run`, against `server`."""
    monkeypatch.setenv("JAN_SERVE_URL", server.url)
    return run


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration for the test. Returns its models folder."""
    models = tmp_path / "models"
    models.mkdir()
    config = tmp_path / "config.toml"
    config.write_text('data_dir = "."\n')
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(config))
    monkeypatch.setattr("jan_serve.wiring.parts.builtin_model", lambda: None)
    return models


@pytest.fixture
def client(server: ServedApp) -> Generator[ServerClient]:
    """No chats are there before the test."""
    with ServerClient(ServerAddress(server.url, "--url", SecretStr("k"), "default")) as client:
        for chat in client.get("/extras/chats", {"limit": "200"})["data"]:
            client.delete(f"/extras/chats/{chat['id']}")
        yield client
