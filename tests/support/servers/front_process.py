"""The server over fake engines, or a proxy, as a separate process, for signals and exits. Prints its port.

Run with: FOLDER DRAIN_SECONDS, and as JSON the API keys, the seconds of a connection's deadlines (0: its own) and
whether it is a proxy.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, TextIO

from tests.support.deadline import deadline
from tests.support.engine.engines import FAKE_ENGINE, FakeResolver

_ROOT = Path(__file__).resolve().parents[3]
_START = (
    f"import sys; sys.path[:0] = {[str(_ROOT), str(_ROOT / 'app')]};"
    " from tests.support.servers.front_process import main; sys.exit(main())"
)


def main() -> int:
    """The process."""
    from jan_serve.api.server import run
    from jan_serve.cli.server.head_start import HeadStart
    from jan_serve.http.connection import HttpConnection
    from jan_serve.logs.log_lines import configure_logging
    from jan_serve.proxy.server import run as run_proxy
    from jan_serve.proxy.settings import ProxySettings
    from jan_serve.supervisor.models.model_manager import ModelManager
    from tests.support.servers.fake_server import server_parts
    from tests.support.servers.fronts import make_settings

    configure_logging("info", as_json=False)
    folder, drain_s = Path(sys.argv[1]), float(sys.argv[2])
    api_keys, timeout_s, is_proxy = json.loads(sys.argv[3])
    if timeout_s:
        HttpConnection.timeout_s = timeout_s
    with socket.create_server(("127.0.0.1", 0)) as sock, HeadStart() as parts:
        if timeout_s:  # else megabytes of answers are on their way before a reader that is stuck is seen
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
        print(sock.getsockname()[1], flush=True)
        if is_proxy:
            return run_proxy(ProxySettings(api_keys=tuple(api_keys), drain_timeout_s=drain_s), sock, print)
        manager = ModelManager(FakeResolver(folder), FAKE_ENGINE)
        settings = make_settings(model=None, drain_timeout_s=drain_s, api_keys=api_keys)
        return run(server_parts(settings, manager, parts), [sock], parts.runner)


class FrontProcess:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process = process
        self._log = log
        self.port = port
        self._open = contextlib.ExitStack()

    def connect(self) -> http.client.HTTPConnection:
        """A new connection, closed by `close`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self._open.callback(connection.close)
        return connection

    def post(self, prompt: str, *, stream: bool = False) -> http.client.HTTPResponse:
        """A completion; the head of its answer has been read."""
        connection = self.connect()
        body = json.dumps({"prompt": prompt, "stream": stream, "max_tokens": 0})
        connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        self._open.callback(response.close)
        return response

    def health(self) -> tuple[int, str]:
        """Status and state of /health."""
        status, body = self._health()
        return status, body["status"]

    def open_requests(self) -> int:
        """As /health counts them."""
        return self._health()[1]["open_requests"]

    def _health(self) -> tuple[int, dict[str, Any]]:
        connection = self.connect()
        connection.request("GET", "/health", headers={"Connection": "close"})
        with connection.getresponse() as response:
            return response.status, json.loads(response.read())

    def close(self) -> None:
        self._open.close()

    def signal(self, number: int) -> None:
        """Send a signal to the server alone."""
        self.process.send_signal(number)

    def end(self, limit_s: float = 60.0) -> tuple[int, str]:
        """Wait for the exit: the status, and everything it logged."""
        status = self.process.wait(timeout=limit_s)
        return status, self._log.read_text(encoding="utf-8")


@contextlib.contextmanager
def front_process(
    folder: Path,
    drain_s: float,
    *,
    api_keys: Sequence[str] = (),
    timeout_s: float = 0.0,
    is_proxy: bool = False,
) -> Generator[FrontProcess]:
    """Start it; kill what is left at the end. timeout_s: for what connections owe, and for idle ones; 0 as they are."""
    given = json.dumps([api_keys, timeout_s, is_proxy])
    log = folder / "front.log"  # a pipe that nobody reads would stop the server when it is full
    with log.open("w", encoding="utf-8") as stderr:
        process = _started(folder, drain_s, given, stderr)
    try:
        assert process.stdout is not None
        with deadline(process):
            front = FrontProcess(process, int(process.stdout.readline()), log)
        with contextlib.closing(front):
            yield front
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)


def _started(folder: Path, drain_s: float, given: str, stderr: TextIO) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAN_SERVE_")}
    return subprocess.Popen(
        [sys.executable, "-c", _START, str(folder), str(drain_s), given],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment,
    )
