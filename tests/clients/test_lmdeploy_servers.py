"""LMDeploy's own proxy in front of our server, and its api_server's registration at our proxy."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.lmdeploy_parts import FOLDER, VERSIONS
from tests.support.clients.raw_http import get, post
from tests.support.ports import held_port
from tests.support.processes import wait_until
from tests.support.servers.proxied import nodes_of, proxying
from tests.support.servers.served import running, serving

ROOT = Path(__file__).parents[2]
RUN = [sys.executable, "-m", "tests.clients.run_lmdeploy_servers"]
_URL = re.compile(r"running on (http://\S+)")
CHAT = {
    "model": "jan-tiny",
    "messages": [{"role": "user", "content": "Hello!"}],
    "temperature": 0,
    "max_tokens": 8,
}

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize(
        "version",
        [
            pytest.param(
                version,
                marks=pytest.mark.skipif(
                    not (FOLDER / version / ".installed").exists(),
                    reason=f"LMDeploy {version} is not installed (make test-clients)",
                ),
            )
            for version in VERSIONS
        ],
    ),
]


@contextlib.contextmanager
def lmdeploys_proxy(version: str, folder: Path) -> Generator[str]:
    """Its URL. It checks its nodes every second, and removes for good those that do not answer."""
    variables = {"LMDEPLOY_CONTROLLER_HEART_BEAT_EXPIRATION": "1", "PYTHONPATH": str(ROOT)}
    with running(folder, [*RUN, version, "proxy", "0"], variables) as proxy:
        wait_until(lambda: _URL.search(proxy.log) is not None or proxy.process.poll() is not None, 60)
        found = _URL.search(proxy.log)
        assert found is not None, proxy.log
        yield found[1]


def status_of(url: str) -> dict[str, Any]:
    found: dict[str, Any] = get(url, "/nodes/status").json()
    return found


def test_our_server_joins_answers_and_leaves(version: str, tmp_path: Path) -> None:
    with (
        lmdeploys_proxy(version, tmp_path) as proxy,
        serving(tmp_path, "--port", "0", "--proxy-url", proxy) as server,
    ):
        wait_until(lambda: bool(status_of(proxy)), 60)
        [(url, status)] = status_of(proxy).items()
        assert url.startswith(server.url())
        assert status["role"] == 1
        assert "jan-tiny" in status["models"]
        assert "jan-tiny" in [card["id"] for card in get(proxy, "/v1/models").json()["data"]]
        answer = post(proxy, "/v1/chat/completions", CHAT)
        expected = post(server.url(), "/v1/chat/completions", CHAT)
        assert answer.status == expected.status == 200
        assert answer.json()["choices"][0]["message"]["content"]
        streamed = post(proxy, "/v1/chat/completions", {**CHAT, "stream": True})
        assert streamed.body.rstrip().endswith(b"data: [DONE]")
        assert b"error_code" not in streamed.body
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not status_of(proxy))
        assert server.wait() == 0


def test_its_api_server_joins_our_proxy_before_it_listens(version: str, tmp_path: Path) -> None:
    with held_port() as port, proxying(tmp_path) as proxy:
        command = [*RUN, version, "register", f"http://0.0.0.0:{port}", proxy.url()]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
        assert "failed" not in done.stderr
        [node] = nodes_of(proxy.url())
        assert (node["url"], node["models"], node["role"]) == (
            f"http://127.0.0.1:{port}",
            ["jan-tiny"],
            "hybrid",
        )
        assert not node["routable"]
        with serving(tmp_path, "--port", str(port)):
            wait_until(lambda: bool(nodes_of(proxy.url())[0]["routable"]), 120)
            assert post(proxy.url(), "/v1/chat/completions", CHAT).status == 200
