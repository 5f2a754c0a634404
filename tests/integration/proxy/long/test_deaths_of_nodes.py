"""Real servers behind a real proxy, of which one ends in the middle of its streams: they go on at the other one."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.chaos.world import write_exact
from tests.support.clients.raw_http import get
from tests.support.processes import wait_until, workers_of
from tests.support.servers.proxied import member, nodes_of, proxying

pytestmark = pytest.mark.integration

MODEL = "writer"
TEXT = "Tell me a long story about a dog, please, with many words."
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": TEXT}], "model": MODEL, "stream": True}
BUILTIN = Path(__file__).resolve().parents[4] / "models" / "builtin" / "jan-tiny.gguf"
SAMPLED = {"seed": 5, "temperature": 0.9, "ignore_eos": True}
LENGTH = 400
QUESTIONS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", CHAT | SAMPLED | {"max_tokens": LENGTH, "n": 2, "logprobs": True}),
    (
        "/v1/completions",
        {"model": MODEL, "prompt": TEXT, "stream": True, "max_tokens": LENGTH} | SAMPLED,
    ),
    ("/v1/messages", CHAT | {"max_tokens": LENGTH, "temperature": 0}),
    ("/v1/responses", {"model": MODEL, "input": TEXT, "stream": True, "temperature": 0}),
    ("/api/chat", CHAT | {"options": SAMPLED | {"num_predict": LENGTH}}),
    (
        "/generate",
        {"prompt": TEXT, "stream": True, "max_tokens": LENGTH, "ignore_eos": True, "temperature": 0},
    ),
]


class Reader(threading.Thread):
    """Reads a stream. begun: once some of it has come."""

    def __init__(self, url: str, path: str, body: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.body, self.begun = b"", threading.Event()
        self._url, self._path, self._sent = url, path, json.dumps(body)
        self.start()

    def run(self) -> None:
        connection = http.client.HTTPConnection(urlsplit(self._url).netloc, timeout=120)
        connection.request("POST", self._path, self._sent, {"content-type": "application/json"})
        answer = connection.getresponse()
        while part := answer.read1():
            self.body += part
            if len(self.body) > 1500:
                self.begun.set()
        self.begun.set()
        connection.close()


def text_of(body: bytes) -> str:
    """All texts of the events, whatever the dialect and however many tokens an event has."""
    found: list[str] = []
    for line in body.decode().split("\n"):
        data = line.removeprefix("data: ").removeprefix("data:")
        if not data.startswith("{"):
            continue
        event: Any = json.loads(data)
        assert not event.get("error") or event["error"] is None, event
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {"content": choice.get("text")}
            found.append((delta.get("content") or "") * (choice["index"] == 0))
        delta: Any = event.get("delta")
        if isinstance(delta, str):
            found.append(delta)
        elif delta:
            found.append(delta.get("text") or "")
        if "message" in event and isinstance(event["message"], dict) and "done" in event:
            found.append(event["message"]["content"])
        if isinstance(event.get("text"), str) and "meta_info" in event:
            found.append(event["text"])
    return "".join(found)


def moved(proxy: str) -> float:
    found = re.search(
        r"^jan_serve_proxy_moved_total(?:{.*})? (.*)$", get(proxy, "/metrics").body.decode(), re.MULTILINE
    )
    assert found is not None
    return float(found[1])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_streams_go_on_at_the_other_node(tmp_path: Path, how: signal.Signals) -> None:
    shelf = tmp_path / "models"
    shelf.mkdir()
    write_exact(BUILTIN, shelf / f"{MODEL}.gguf")
    flags = ("--models-dir", str(shelf), "--model", MODEL, "--parallel", "8", "--n-ctx", "8192")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "config.toml").write_text(
        'data_dir = "data"\ndrain_timeout_s = 3600\n', encoding="utf-8"
    )
    with proxying(tmp_path) as proxy:
        url = proxy.url()
        with member(tmp_path / "a", url, *flags) as first:
            readers = [Reader(url, path, body) for path, body in QUESTIONS]
            for reader in readers:
                assert reader.begun.wait(60)
            [worker] = workers_of(first.process.pid)
            worker.suspend()  # no answer ends before its node
            with member(tmp_path / "b", url, *flags) as second:
                wait_until(lambda: all(node["state"] == "healthy" for node in nodes_of(url)))
                assert any(reader.is_alive() for reader in readers)
                first.process.send_signal(how)
                wait_until(lambda: moved(url) > 0)
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.resume()
                for reader in readers:
                    reader.join(120)
                first.process.wait(60)  # its streams have left, so that nothing keeps it
                whole = [Reader(second.url(), path, body) for path, body in QUESTIONS]
                for one in whole:
                    one.join(120)
                for reader, one, (path, _) in zip(readers, whole, QUESTIONS, strict=True):
                    assert text_of(reader.body) == text_of(one.body) != "", path
                    for kind in (b"chatcmpl", b"cmpl", b"msg", b"resp"):
                        assert len(set(re.findall(rb'"id":"' + kind + rb'[-_][^"]*"', reader.body))) <= 1, (
                            path
                        )
