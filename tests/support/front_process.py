"""The server over fake engines as a separate process, for signals and exits. Prints its port on standard output.

Run with: FOLDER DRAIN_SECONDS.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

from tests.support.deadline import deadline
from tests.support.engines import FAKE_ENGINE, FakeResolver

_ROOT = Path(__file__).resolve().parents[2]
_START = (
    f"import sys; sys.path[:0] = {[str(_ROOT), str(_ROOT / 'app')]};"
    " from tests.support.front_process import main; sys.exit(main())"
)


def main() -> int:
    from jan_serve.api.server import run
    from jan_serve.logs.log_lines import configure_logging
    from jan_serve.supervisor.models.model_manager import ModelManager
    from jan_serve.wiring.parts import build_renderer
    from tests.support.fronts import make_settings

    configure_logging("info", as_json=False)
    folder, drain_s = Path(sys.argv[1]), float(sys.argv[2])
    with socket.create_server(("127.0.0.1", 0)) as sock:
        print(sock.getsockname()[1], flush=True)
        manager = ModelManager(FakeResolver(folder), FAKE_ENGINE)
        return run(make_settings(model=None, drain_timeout_s=drain_s), manager, build_renderer(), sock)


class FrontProcess:
    """A running server."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self._open = contextlib.ExitStack()

    def connect(self) -> http.client.HTTPConnection:
        """A new connection, closed by `close`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
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
        connection = self.connect()
        connection.request("GET", "/health", headers={"Connection": "close"})
        with connection.getresponse() as response:
            return response.status, json.loads(response.read())["status"]

    def close(self) -> None:
        self._open.close()

    def signal(self, number: int) -> None:
        """Send a signal to the server alone."""
        self.process.send_signal(number)

    def end(self, limit_s: float = 20.0) -> tuple[int, str]:
        """Wait for the exit; returns the status and the whole log."""
        _, log = self.process.communicate(timeout=limit_s)
        return self.process.returncode, log


@contextlib.contextmanager
def front_process(folder: Path, drain_s: float) -> Generator[FrontProcess]:
    """Start it; kills the rest at the end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAN_SERVE_")}
    process = subprocess.Popen(
        [sys.executable, "-c", _START, str(folder), str(drain_s)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        assert process.stdout is not None
        with deadline(process):
            front = FrontProcess(process, int(process.stdout.readline()))
        with contextlib.closing(front):
            yield front
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=60)
