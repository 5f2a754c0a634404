"""Constraints that take far more than a request may, at a server of its own with fake engines."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.processes import wait_until
from tests.support.servers.fake_server import fake_server
from tests.support.servers.served import Served

pytestmark = pytest.mark.integration

SMALL = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def hostile(number: int) -> dict[str, Any]:
    """13.5 KB that take minutes to translate; each number is another constraint."""
    patterns = [{"type": "string", "pattern": f"[a-z]{{{i}}}"} for i in range(number, number + 300)]
    return {"oneOf": patterns}


@contextlib.contextmanager
def connected(served: Served) -> Generator[http.client.HTTPConnection]:
    split = urlsplit(served.url())
    with contextlib.closing(http.client.HTTPConnection(split.hostname or "", split.port, timeout=60)) as made:
        yield made


def body_of(schema: Any) -> str:
    return json.dumps(
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    )


def ask(connection: http.client.HTTPConnection, schema: Any) -> None:
    body = body_of(schema)
    connection.request("POST", "/extras/grammar", body, {"Content-Type": "application/json"})


def answer(connection: http.client.HTTPConnection) -> tuple[int, dict[str, Any]]:
    with connection.getresponse() as response:
        return response.status, json.loads(response.read())


def compilers(served: Served) -> list[psutil.Process]:
    return [child for child in psutil.Process(served.process.pid).children() if _compiles(child)]


def _compiles(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()[-1:] == ["compile"]
    return False


def test_hostile_constraints_hold_nobody_up_for_long(tmp_path: Path) -> None:
    with fake_server(tmp_path) as served:
        split = urlsplit(served.url())
        body = body_of(hostile(1)).encode()
        head = (
            "POST /extras/grammar HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        for _ in range(4):  # their clients leave
            with socket.create_connection((split.hostname, split.port)) as leaving:
                leaving.sendall(head.encode() + body)
        with contextlib.ExitStack() as stack:
            staying = [stack.enter_context(connected(served)) for _ in range(4)]
            for number, connection in enumerate(staying):
                ask(connection, hostile(number))
            with connected(served) as other:
                began = time.monotonic()
                ask(other, SMALL)
                status, document = answer(other)
                assert (status, "root" in document["grammar"]) == (200, True)
                assert time.monotonic() - began < 30, "the limit is 2 s, on a machine of its own"
                other.request("GET", "/health")
                assert answer(other)[0] == 200
            ends = [answer(connection) for connection in staying]
            found = {(status, document["error"]["code"]) for status, document in ends}
            # Those that found no free process for seconds may ask again.
            assert (400, "grammar_too_complex") in found
            assert found <= {(400, "grammar_too_complex"), (429, "overloaded")}


def test_what_was_refused_is_refused_at_once(tmp_path: Path) -> None:
    with fake_server(tmp_path) as served, connected(served) as connection:
        ask(connection, hostile(1))
        first = answer(connection)
        assert first[1]["error"]["code"] == "grammar_too_complex"
        for process in compilers(served):
            process.suspend()  # who asks one of these gets no answer
        try:
            ask(connection, hostile(1))
            assert answer(connection) == first
        finally:
            for process in compilers(served):
                process.resume()


def test_a_killed_compiler_costs_no_request(tmp_path: Path) -> None:
    with fake_server(tmp_path) as served, connected(served) as connection:
        ask(connection, SMALL)
        assert answer(connection)[0] == 200
        for process in compilers(served):
            process.kill()
        ask(connection, {"const": 1})
        assert answer(connection)[0] == 200


def test_sigterm_ends_the_server_whatever_it_compiles(tmp_path: Path) -> None:
    with fake_server(tmp_path, drain_timeout_s=1) as served, contextlib.ExitStack() as stack:
        for number in range(6):
            ask(stack.enter_context(connected(served)), hostile(number))
        wait_until(lambda: len(compilers(served)) > 0)
        left = compilers(served)
        served.process.send_signal(signal.SIGTERM)
        assert served.wait(60) == 0, served.log
        wait_until(lambda: not any(process.is_running() for process in left))
        assert "Traceback" not in served.log
