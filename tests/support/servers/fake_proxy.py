"""A proxy as far as a replica asks it: the list of nodes, which the test decides."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeProxy:
    """nodes: None answers 503. keys: what came as `Authorization`."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] | None = []
        self.keys: list[str | None] = []
        self.url = ""

    def show(self, url: str, *, routable: bool = True) -> None:
        self.nodes = [{"url": url, "routable": routable}]


@contextlib.contextmanager
def fake_proxy() -> Generator[FakeProxy]:
    fake = FakeProxy()

    class Nodes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fake.keys.append(self.headers.get("authorization"))
            body = json.dumps({"nodes": fake.nodes or []}).encode()
            self.send_response(200 if fake.nodes is not None else 503)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Nodes)
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
