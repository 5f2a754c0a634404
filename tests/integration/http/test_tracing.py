"""Traces of a real server: at a collector, without one that answers, and what is imported without the setting."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from jan_serve.resources import builtin_model
from tests.integration.http.support import serving_models
from tests.support.clients.raw_http import post

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
BODY: dict[str, Any] = {"messages": [{"role": "user", "content": "the secret"}], "max_tokens": 3}
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@contextmanager
def collector() -> Generator[tuple[str, list[bytes]]]:
    """Its URL, and the bodies that it got."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def spans_of(bodies: list[bytes]) -> dict[str, Span]:
    found: dict[str, Span] = {}
    for body in bodies:
        request = ExportTraceServiceRequest.FromString(body)
        for scope in (scope for each in request.resource_spans for scope in each.scope_spans):
            found.update((span.name, span) for span in scope.spans)
    return found


def test_a_collector_gets_a_request_and_its_phases(tmp_path: Path, exact_llama: Path) -> None:
    model = builtin_model()
    assert model is not None
    with collector() as (url, bodies):
        # The first model loads by itself: a request for the other one loads it.
        with serving_models(tmp_path, exact_llama, model, flags=("--otel-endpoint", url)) as served:
            body = {**BODY, "model": model.stem}
            assert post(served.url(), "/v1/chat/completions", body, headers=HEADERS).status == 200
            served.process.terminate()
            assert served.wait(60) == 0, served.log
        spans = spans_of(bodies)
        assert not any(b"the secret" in body for body in bodies)
    request = spans["POST /v1/chat/completions"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, PARENT)
    phases = {"load", "template", "queue", "reading", "writing"}
    assert phases <= spans.keys()
    for name in phases:
        phase = spans[name]
        assert request.start_time_unix_nano <= phase.start_time_unix_nano
        assert phase.start_time_unix_nano <= phase.end_time_unix_nano <= request.end_time_unix_nano
    tokens = {each.key: each.value.int_value for each in spans["chat jan-tiny"].attributes}
    assert tokens["gen_ai.usage.output_tokens"] == 3


def test_a_collector_that_never_answers_delays_neither_requests_nor_the_end(tmp_path: Path) -> None:
    model = builtin_model()
    assert model is not None
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with serving_models(tmp_path, model, flags=("--otel-endpoint", url)) as served:
            for _ in range(3):
                assert post(served.url(), "/v1/chat/completions", BODY).status == 200
            served.process.terminate()
            assert served.wait(60) == 0, served.log


def test_nothing_of_it_is_imported_without_the_setting() -> None:
    code = (
        "import sys, jan_serve.proxy.app\n"
        "from tests.support.documented import document\n"
        "document()\n"
        "names = ('opentelemetry.sdk', 'opentelemetry.exporter', 'jan_serve.http.tracing')\n"
        "found = [name for name in sys.modules if name.startswith(names)]\n"
        "assert not found, found\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
