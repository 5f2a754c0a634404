"""Starts and stops the compared servers. Each runs alone, on a free loopback port."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

START_TIMEOUT_S = 120.0
_ANSWER_TIMEOUT_S = 1800.0


class Refused(RuntimeError):
    """An answer with the status of an error."""

    def __init__(self, path: str, status: int, text: str) -> None:
        super().__init__(f"{path}: {status}: {text}")
        self.status = status


@dataclass(slots=True)
class Running:
    """A running server. process: None if it was started elsewhere; only our own can be restarted."""

    name: str
    base: str
    process: psutil.Process | None
    ready_s: float
    restart: Callable[[], None] | None = None
    """Restart it with its files on disk; `ready_s` is the new one's."""
    model: Path | None = None

    def n_ctx(self) -> int | None:
        """The longest sequence in tokens, from llama-server's /props; None if the server has none."""
        try:
            with urllib.request.urlopen(f"{self.base}/props", timeout=30.0) as response:
                props: dict[str, Any] = json.load(response)
            return int(props["default_generation_settings"]["n_ctx"])
        except (urllib.error.URLError, ValueError, KeyError, TypeError):
            return None

    def counters(self) -> dict[str, float]:
        """The sums of /metrics over all labels, by name; empty if the server has none."""
        try:
            with urllib.request.urlopen(f"{self.base}/metrics", timeout=30.0) as response:
                lines: list[str] = response.read().decode().splitlines()
        except urllib.error.URLError:
            return {}
        found: dict[str, float] = {}
        for line in lines:
            if line and not line.startswith("#"):
                name, value = re.split(r"[{ ]", line, maxsplit=1)[0], line.rsplit(" ", 1)[1]
                found[name] = found.get(name, 0.0) + float(value)
        return found

    def post(
        self, path: str, body: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """The answer to a JSON body. Raises Refused."""
        own = {"Content-Type": "application/json", **(headers or {})}
        request = urllib.request.Request(self.base + path, json.dumps(body).encode(), own)
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_TIMEOUT_S) as response:
                answer: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            text = error.read(1000).decode(errors="replace")
            raise Refused(path, error.code, text) from error
        return answer

    def tree_rss_mb(self) -> dict[str, float]:
        """Resident megabytes of the front process and of its children together."""
        if self.process is None:
            return {}
        children = self.process.children(recursive=True)
        return {
            "front": self.process.memory_info().rss / 2**20,
            "children": sum(child.memory_info().rss for child in children) / 2**20,
        }

    def cpu_seconds(self) -> float:
        """CPU time of the whole process tree."""
        if self.process is None:
            return 0.0
        tree = [self.process, *self.process.children(recursive=True)]
        return sum(p.cpu_times().user + p.cpu_times().system for p in tree)


@dataclass(frozen=True, slots=True)
class Command:
    """A server to start: `{model}` and `{port}` are filled in. `url` names a running one instead."""

    name: str
    command: str = ""
    url: str = ""


def ours(extra: str) -> Command:
    """This checkout's server with its own flags added."""
    return Command(
        "jan-serve",
        f"{shlex.quote(sys.executable)} -m jan_serve serve --model {{model}} --port {{port}} {extra}",
    )


def peer_of(text: str) -> Command:
    """Another server to start: `NAME=command`, or a command that is named by its program."""
    name, _, command = text.partition("=")
    if command and re.fullmatch(r"[\w.-]+", name):
        return Command(name, command)
    return Command(Path(shlex.split(text)[0]).name, text)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def fresh_environment(folder: str) -> dict[str, str]:
    """That of a new user whose files are in this folder.

    No variable of ours names it where the home does: settings from the environment cost a start imports.
    """
    if sys.platform == "win32":
        return dict(os.environ, JAN_SERVE_DATA_DIR=folder)
    names = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")
    return {**os.environ, **dict.fromkeys(names, folder)}


@contextlib.contextmanager
def started(command: Command, model: Path) -> Iterator[Running]:
    """Start the server, wait until /health answers, and end it (and its children) afterwards."""
    if command.url:
        yield Running(command.name, command.url.rstrip("/"), None, 0.0)
        return
    port = free_port()
    line = command.command.format(model=shlex.quote(str(model)), port=port)
    with tempfile.TemporaryDirectory() as data, open(Path(data) / "log", "wb") as log:
        environment = fresh_environment(str(Path(data) / "home"))
        base = f"http://127.0.0.1:{port}"
        processes: list[subprocess.Popen[bytes]] = []

        def start() -> tuple[psutil.Process, float]:
            began = time.perf_counter()
            process = subprocess.Popen(shlex.split(line), stdout=log, stderr=log, env=environment)
            processes.append(process)
            _wait(base, process, Path(data) / "log")
            return psutil.Process(process.pid), time.perf_counter() - began

        def restart() -> None:
            _end(processes[-1])
            server.process, server.ready_s = start()

        try:
            process, ready_s = start()
            server = Running(command.name, base, process, ready_s, restart, model)
            yield server
        finally:
            _end(processes[-1])


def _wait(base: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(
                f"the server ended with {process.returncode}: {log.read_text(errors='replace')[-2000:]}"
            )
        try:
            with urllib.request.urlopen(base + "/health", timeout=1.0) as reply:
                if reply.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.02)
    raise RuntimeError(f"the server did not answer within {START_TIMEOUT_S:.0f} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
