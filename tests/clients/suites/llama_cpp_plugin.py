"""A plugin of pytest: llama.cpp's server tests start jan-serve where they would start llama-server.

A server stays for the tests with the same flags. It has the built-in model under the name that a test gives it.
With LLAMA_SERVER_BIN_PATH that program runs instead, with the same model: what fails there too is the model's weakness.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections import OrderedDict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import requests

ROOT = Path(__file__).parents[3]
MODEL = ROOT / "models" / "builtin" / "jan-tiny.gguf"
PROJECTOR = MODEL.with_name("mmproj-jan-tiny.gguf")
MAX_SERVERS = 2
# The suite downloads with this package, which is not installed: such a test fails.
sys.modules["wget"] = types.ModuleType("wget")
sys.path.insert(0, os.getcwd())
utils: Any = __import__("utils")


class Server:
    """A jan-serve with the flags of one of llama-server's."""

    def __init__(self, wanted: Any) -> None:
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        alias = (wanted.model_alias or "tinyllama-2").partition(",")[0]
        models = folder / "models" / alias
        models.mkdir(parents=True)
        (models / f"{alias}.gguf").symlink_to(MODEL)
        if wanted.model_alias == "tinygemma3" and not wanted.no_mmproj:
            (models / "mmproj.gguf").symlink_to(PROJECTOR)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        config = folder / "config.toml"
        config.write_text(
            f'data_dir = "data"\n[models."{alias}".sampling]\ntemperature = {wanted.temperature}\n'
            f"seed = {wanted.seed}\n"
            + (f"max_tokens = {wanted.n_predict}\n" if (wanted.n_predict or -1) > 0 else "")
        )
        flags = {
            "--config": config,
            "--models-dir": models.parent,
            "--model": alias,
            "--port": self.port,
            "--n-ctx": wanted.n_ctx,
            "--parallel": wanted.n_slots,
            "--n-batch": wanted.n_batch and max(wanted.n_batch, 32),
            "--n-ubatch": wanted.n_ubatch and max(wanted.n_ubatch, 32),
            "--api-key": wanted.api_key,
            "--pooling": wanted.pooling,
            "--chat-template": template(wanted, folder, alias),
            "--no-auth": None if wanted.api_key or wanted.server_host.startswith("127.") else "",
        }
        given = [str(part) for flag, value in flags.items() if value is not None for part in (flag, value)]
        self.process = subprocess.Popen(
            [ROOT / ".venv" / "bin" / "jan-serve", "serve", *given],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(folder / "log").open("w"),
            cwd=folder,
        )
        until = time.monotonic() + 300
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > until:
                log = (folder / "log").read_text()
                self.stop()
                raise RuntimeError(log)
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return requests.get(f"http://127.0.0.1:{self.port}/health", timeout=30).status_code == 200
        except (requests.ConnectionError, requests.Timeout):
            return False

    def stop(self) -> None:
        self.process.kill()  # its workers end with it
        self.process.wait(30)
        self.folder.cleanup()


def template(wanted: Any, folder: Path, alias: str) -> str | None:
    """The chat template that the test names or holds."""
    if wanted.chat_template_file:
        return f"{alias}={Path(wanted.chat_template_file).resolve()}"
    if not wanted.chat_template:
        return None
    if wanted.chat_template == "chatml":
        return f"{alias}=chatml"
    file = folder / "template.jinja"
    file.write_text(wanted.chat_template)
    return f"{alias}={file}"


def download(url: str, output_file_path: str | None = None) -> str:
    """The built-in projector in place of another model's; nothing else, since the suite needs no network here."""
    assert "mmproj" in url, f"{url} is not downloaded"
    return str(PROJECTOR)


utils.download_file = download
_servers: OrderedDict[str, Server] = OrderedDict()


def start(self: Any, timeout_seconds: int = 60) -> None:
    key = repr(sorted((name, value) for name, value in vars(self).items() if name != "server_port"))
    if key not in _servers:
        while len(_servers) >= MAX_SERVERS:
            _servers.popitem(last=False)[1].stop()
        _servers[key] = Server(self)
    _servers.move_to_end(key)
    self.server_port = _servers[key].port


def start_peer(self: Any, timeout_seconds: int = 60) -> None:
    """Start llama-server with the built-in model."""
    seeing = self.model_alias == "tinygemma3"
    self.model_file, self.model_hf_repo, self.model_hf_file = str(MODEL), None, None
    self.mmproj_url = None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        self.server_port = free.getsockname()[1]
    if seeing and not self.no_mmproj:
        os.environ["LLAMA_ARG_MMPROJ"] = str(PROJECTOR)
    else:
        os.environ.pop("LLAMA_ARG_MMPROJ", None)
    _start(self, timeout_seconds)


_start = utils.ServerProcess.start
if "LLAMA_SERVER_BIN_PATH" in os.environ:
    utils.ServerProcess.start = start_peer
else:
    utils.ServerProcess.start = start
    utils.ServerProcess.stop = lambda self: None


@pytest.fixture(autouse=True)
def stop_peers() -> Generator[None]:
    yield
    for server in set(utils.server_instances):
        server.stop()


def pytest_unconfigure() -> None:
    for server in _servers.values():
        server.stop()
