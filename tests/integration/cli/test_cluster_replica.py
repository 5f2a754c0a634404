"""`jan-serve cluster-replica`, as a replica of Ray Serve runs it: joins a proxy, serves, and ends with its input."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from jan_serve.cluster.child import Child, ChildEnded
from tests.support.processes import wait_until
from tests.support.proxied import JOIN_LIMIT_S, nodes_of, proxying
from tests.support.raw_http import connect, get, post_bytes

pytestmark = pytest.mark.integration

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
