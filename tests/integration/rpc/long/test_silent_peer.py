"""A peer that accepts connections and answers nothing: its model fails clearly, and others go on."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.integration.rpc.lending import Lender, lending
from tests.support.clients.raw_http import connect, get, post_bytes
from tests.support.processes import wait_until
from tests.support.servers.served import Served, serving

pytestmark = pytest.mark.integration
MIB = 1 << 20
CONFIG = """data_dir = "data"
models_dir = "models"
n_ctx = 512
stall_decode_s = 10
[models."lent"]
n_gpu_layers = "all"
require_accelerator = true
[models."here"]
device = "cpu"
"""


@contextmanager
def silenced(lender: Lender) -> Generator[None]:
    """The kernel still accepts its connections; no process of it runs. The server is stopped first, else it may start
    one more that answers."""
    processes = [psutil.Process(lender.process.pid)]
    processes[0].suspend()
    try:
        for process in lender.processes():
            process.suspend()
            processes.append(process)
        yield
    finally:
        for process in processes:
            process.resume()


def complete(url: str, model: str) -> tuple[int, str]:
    body = {"model": model, "prompt": "once upon a time", "max_tokens": 8, "temperature": 0}
    with connect(url, timeout_s=120) as connection:
        connection.send(post_bytes(url, "/v1/completions", body))
        answer = connection.response()
    return answer.status, answer.body.decode()


@contextmanager
def two_models(dense: Path, folder: Path, lender: Lender) -> Generator[Served]:
    (folder / "models").mkdir()
    for name in ("lent", "here"):
        shutil.copy(dense, folder / "models" / f"{name}.gguf")
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    with serving(folder, "--port", "0", "--rpc", lender.endpoint) as server:
        yield server


def test_a_peer_that_falls_silent_costs_its_model_only(dense: Path, tmp_path: Path) -> None:
    with lending(64 * MIB) as lender, two_models(dense, tmp_path, lender) as server:
        url = server.url(180)
        for model in ("lent", "here"):
            status, text = complete(url, model)
            assert status == 200, text
        with silenced(lender):
            # The request is tried again in a worker without the peer, which this model must have.
            status, text = complete(url, "lent")
            assert status == 500 and "require_accelerator" in text and lender.endpoint in text, text
            assert complete(url, "here")[0] == 200
        wait_until(lambda: complete(url, "lent")[0] == 200, 180)


def test_a_peer_that_is_silent_from_the_start_is_named(dense: Path, tmp_path: Path) -> None:
    with lending(64 * MIB) as lender, silenced(lender), two_models(dense, tmp_path, lender) as server:
        url = server.url(180)
        status, text = complete(url, "lent")
        assert status == 500 and "settings_error" in text, text
        assert "require_accelerator: llama.cpp finds no accelerator that may be used" in text
        wait_until(lambda: f"{lender.endpoint}: it does not answer in time" in server.log)
        assert "require_accelerator" in server.log
        assert complete(url, "here")[0] == 200
        assert get(url, "/health").status == 200
