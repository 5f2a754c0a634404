"""`jan-serve proxy`, and commands whose address is that of a proxy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from jan_serve.cli.main import main
from tests.support.kept_logging import keep_logging as keep_logging
from tests.support.processes import wait_until
from tests.support.servers.proxied import JOIN_LIMIT_S, nodes_of, proxying
from tests.support.servers.served_app import ServedApp
from tests.unit.cli.conftest import Run


def test_lmdeploys_names_start_it_and_nodes_shows_why_one_gets_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "--server-name",
        "127.0.0.1",
        "--routing-strategy",
        "random",
        "--disable-gdr",
        "--node",
        "http://127.0.0.1:1",
    ]
    with proxying(tmp_path, *flags, "--disable-cache-status", "--serving-strategy", "Hybrid") as proxy:
        assert main(["nodes", "--url", proxy.url(), "--json"]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["strategy"] == "random"
        assert "refused" in shown["nodes"][0]["reason"]
        assert main(["nodes", "--url", proxy.url()]) == 0
        shown = capsys.readouterr()
        assert "127.0.0.1:1" in shown.out
        assert "no prompt measured" in shown.err


def test_a_proxy_without_nodes_says_how_one_joins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with proxying(tmp_path) as proxy:
        assert main(["nodes", "--url", proxy.url()]) == 0
    assert f"On this machine: jan-serve serve --proxy-url {proxy.url()}\n" in capsys.readouterr().err


def test_the_proxy_starts_without_what_models_need() -> None:
    heavy = "fastapi", "pydantic", "numpy"
    code = f"import sys, jan_serve.proxy.server; print(*sys.modules.keys() & {set(heavy)})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == ""


@pytest.fixture(scope="module")
def proxy(server: ServedApp, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The address of a proxy in front of `server`."""
    with proxying(tmp_path_factory.mktemp("proxy"), "--node", server.url) as served:
        url = served.url()
        wait_until(lambda: any(node["routable"] for node in nodes_of(url)), JOIN_LIMIT_S)
        yield url


def test_ps_lists_the_models_of_the_nodes(run: Run, proxy: str) -> None:
    answer = run("ps", "--url", proxy)
    assert (answer.status, "alpha" in answer.out) == (0, True), answer.err
    shown = json.loads(run("ps", "--url", proxy, "--json").out)
    assert "alpha" in [model["id"] for model in shown["models"]]


def test_requests_to_models_pass_through(run: Run, proxy: str) -> None:
    assert run("run", "alpha", "!say", "Hello", "--url", proxy).out == "Hello\n"
    assert json.loads(run("run", "alpha", "!say x", "--json", "--url", proxy).out)["text"] == "x"
    assert run("tokenize", "alpha", "ab", "--count", "--url", proxy).status == 0
    unknown = run("run", "gamma", "!say x", "--url", proxy)
    assert (unknown.status, "gamma" in unknown.err) == (2, True)
    unnamed = run("run", "", "!say x", "--url", proxy)
    assert (unnamed.status, "alpha, beta-7b" in unnamed.err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        ("load", "alpha"),
        ("stop", "alpha"),
        ("logs",),
        ("logs", "--follow"),
    ],
)
def test_what_only_a_server_can_do_names_the_servers(run: Run, proxy: str, words: tuple[str, ...]) -> None:
    answer = run(*words, "--url", proxy, stdin=b"text")
    assert (answer.status, answer.out) == (2, "")
    assert f"{proxy} is a jan-serve proxy, and this command needs a server" in answer.err
    assert f"jan-serve nodes --url {proxy}" in answer.err


def test_calibration_needs_a_server(run: Run, proxy: str, tmp_path: Path) -> None:
    examples = tmp_path / "examples.jsonl"
    examples.write_text("{}\n")
    answer = run("decide", "alpha", "--calibrate", str(examples), "--url", proxy)
    assert (answer.status, "is a jan-serve proxy" in answer.err) == (2, True)


def test_nodes_of_a_server(run: Run, server: ServedApp) -> None:
    answer = run("nodes", "--url", server.url)
    assert answer.status == 2
    assert f"{server.url} is a jan-serve server, and this command needs a proxy" in answer.err
    assert "jan-serve proxy" in answer.err.splitlines()[1]
