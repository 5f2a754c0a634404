"""`own-server` and `cluster-replica`: the address is the first line, and they end with their standard input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jan_serve.cluster.replica import Child, ChildEnded
from tests.support.clients.raw_http import connect, get, post_bytes
from tests.support.deadline import deadline
from tests.support.processes import wait_until
from tests.support.servers.managed import add_model
from tests.support.servers.proxied import JOIN_LIMIT_S, nodes_of, proxying

pytestmark = pytest.mark.integration


@contextmanager
def own_server(folder: Path, *flags: str) -> Generator[subprocess.Popen[str]]:
    """One whose configuration has another host, and a default model that cannot be loaded."""
    add_model(folder, "empty")
    config = folder / "config.toml"
    config.write_text(
        'data_dir = "data"\nhost = "0.0.0.0"\nport = 1\nmodel = "empty.gguf"\n', encoding="utf-8"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAN_SERVE_")}
    with (
        subprocess.Popen(
            [sys.executable, "-P", "-m", "jan_serve", "own-server", "--config", str(config), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=folder,
            text=True,
        ) as process,
        deadline(process, 120),
    ):
        yield process


@pytest.mark.parametrize(("flags", "models"), [((), ["empty"]), (("--no-default",), [])])
def test_it_serves_on_a_local_port_until_its_input_ends(
    tmp_path: Path, flags: tuple[str, ...], models: list[str]
) -> None:
    with own_server(tmp_path, *flags) as process:
        assert process.stdin is not None and process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        wait_until(lambda: models_at(url) == models, 60)
        process.stdin.close()
        assert process.stdout.read() == ""
        assert process.wait() == 0


def models_at(url: str) -> list[str]:
    """Those that are in memory, or could not be loaded."""
    with urllib.request.urlopen(f"{url}/health", timeout=60) as answer:
        return [model["name"] for model in json.load(answer)["models"]]


STREAM = {
    "model": "jan-tiny",
    "messages": [{"role": "user", "content": "Count to a thousand."}],
    "max_tokens": 300,
    "ignore_eos": True,
    "stream": True,
}


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.toml"
    config.write_text('data_dir = "data"\nn_ctx = 512\n', encoding="utf-8")
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(config))


def test_a_stream_that_runs_when_its_input_ends_is_finished(tmp_path: Path) -> None:
    with proxying(tmp_path, "--node-key", "NODES") as proxy:
        child = Child({"host": "127.0.0.1", "proxy_url": proxy.url(), "n_ctx": 1024, "api_keys": ["NODES"]})
        url = child.url()
        wait_until(
            lambda: [node["url"] for node in nodes_of(proxy.url()) if node["routable"]] == [url], JOIN_LIMIT_S
        )
        assert get(url, "/v1/models").status == 401
        with connect(proxy.url(), timeout_s=JOIN_LIMIT_S) as connection:
            connection.send(post_bytes(proxy.url(), "/v1/chat/completions", STREAM, {"connection": "close"}))
            connection.read_until(b"data: ")
            ending = threading.Thread(target=child.stop, args=(30,))
            ending.start()
            assert b"data: [DONE]" in connection.read_rest()
        ending.join()
        with pytest.raises(ChildEnded, match="status 0"):
            child.check()
        assert nodes_of(proxy.url()) == []


def test_a_wrong_setting_is_in_the_message() -> None:
    child = Child({"host": "127.0.0.1", "n_ctx": "many"})
    with pytest.raises(ChildEnded, match="n_ctx"):
        child.url()
    child.stop(0)
