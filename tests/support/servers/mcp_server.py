"""A server of the Model Context Protocol for tests, as a process that speaks JSON-RPC on its pipes, or by HTTP.

`entry(*habits)` is its entry in the file of servers. Habits: see `_start` and `_list`; its tools: see `_call`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_ROOT = str(Path(__file__).resolve().parents[3])
_START = (
    f"import sys; sys.path.insert(0, {_ROOT!r}); from tests.support.servers.mcp_server import main; main()"
)
OBJECT: dict[str, Any] = {"type": "object"}
ADD: dict[str, Any] = {
    "name": "add",
    "description": "Adds two numbers.",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
}
NAMES = ("picture", "fail", "wait", "die", "flood", "long", "structured", "variable", "odd", "refuse", "pid")
LIES: list[tuple[Any, str]] = [
    ({"name": "no-schema"}, "an inputSchema that is not an object"),
    ({"name": "text-schema", "inputSchema": "object"}, "an inputSchema that is not an object"),
    ({"name": "list-schema", "inputSchema": {"type": "array"}}, "does not describe an object"),
    (
        {"name": "wrong-type", "inputSchema": {**OBJECT, "properties": {"a": {"type": 5}}}},
        "properties/a/type",
    ),
    ({"name": "wrong-properties", "inputSchema": {**OBJECT, "properties": 5}}, "inputSchema/properties"),
    ({"name": "wrong-required", "inputSchema": {**OBJECT, "required": "a"}}, "inputSchema/required"),
    ({"name": "odd-draft", "inputSchema": {**OBJECT, "$schema": []}}, "inputSchema/$schema"),
    ({"name": "large", "inputSchema": {**OBJECT, "description": "x" * 70_000}}, "more than 65536 bytes"),
    ({"name": "n" * 65, "inputSchema": OBJECT}, "more than 64 characters"),
    ({"name": "add", "inputSchema": OBJECT}, "the name of another tool"),
    ({"name": 7, "inputSchema": OBJECT}, "has no name"),
    ("add", "has no name"),
]


def entry(*habits: str, **variables: str) -> dict[str, Any]:
    """The entry of a server with these habits, in the form of Claude Desktop."""
    return {"command": sys.executable, "args": ["-c", _START, *habits], "env": variables}


def main() -> None:
    habits = sys.argv[1:]
    out, lock = sys.stdout.buffer, threading.Lock()

    def send(message: Any) -> None:
        with lock:
            out.write(json.dumps(message).encode() + b"\n")
            out.flush()

    _start(habits, send)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            answer(message, habits, send)
        elif message.get("method") == "notifications/cancelled" and "TOLD" in os.environ:
            Path(os.environ["TOLD"]).write_text("cancelled")
    if "stays" in habits:
        signal.pause()


def _start(habits: list[str], send: Any) -> None:
    if "silent" in habits:
        signal.pause()
    if "ends" in habits:
        sys.exit("no database here")
    if "line" in habits:
        while True:
            sys.stdout.buffer.write(b"x" * 65536)
    if "notes" in habits:
        while True:
            send(
                {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
            )
    if "prints" in habits:
        sys.stdout.buffer.write(b"starting\n\n{}\n[1]\n\xff\xfe\n" + b"[" * 2000 + b"\n")


def answer(message: dict[str, Any], habits: list[str], send: Any) -> None:
    result: Any = {}
    match message["method"]:
        case "initialize":
            result = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "test", "version": "1"},
            }
        case "tools/list":
            if "no-list" in habits:
                return
            result = _list(habits, message.get("params") or {})
        case "tools/call":
            result = _call(message["params"]["name"], message["params"]["arguments"], send)
        case _:
            pass
    if result is None:
        return
    if result == "refuse":
        error = {"code": -32000, "message": "not today"}
        send({"jsonrpc": "2.0", "id": message["id"], "error": error})
    else:
        send({"jsonrpc": "2.0", "id": message["id"], "result": result})


def _list(habits: list[str], params: dict[str, Any]) -> Any:
    others = [{"name": name, "inputSchema": OBJECT} for name in NAMES]
    if "lies" in habits:
        return {"tools": [ADD, *(lie for lie, _ in LIES)]}
    if "text" in habits:
        return {"tools": "all of them"}
    if "endless" in habits:
        number = int(params.get("cursor", 0))
        tools = [{"name": f"t{number}-{each}", "inputSchema": OBJECT} for each in range(10)]
        return {"tools": tools, "nextCursor": str(number + 1)}
    if "pages" in habits and "cursor" not in params:
        return {"tools": [ADD], "nextCursor": "2"}
    return {"tools": others if "pages" in habits else [ADD, *others]}


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _call(name: str, arguments: dict[str, Any], send: Any) -> Any:
    match name:
        case "add":
            return _text(str(arguments["a"] + arguments["b"]))
        case "picture":
            from tests.support.media.pictures import picture  # Pillow, which others do not need

            data = base64.b64encode(picture(3, 2)).decode()
            return {"content": [{"type": "image", "mimeType": "text/html", "data": data}]}
        case "fail":
            return {**_text("no such file"), "isError": True}
        case "wait":
            if "TOLD" in os.environ:
                Path(f"{os.environ['TOLD']}-begun").touch()
            return None
        case "die":
            sys.exit("out of memory")
        case "flood":
            while True:
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}})
        case "long":
            return _text("x" * 200_000)
        case "structured":
            return {"content": [], "structuredContent": {"sum": 3}}
        case "variable":
            return _text(f"{os.environ.get(arguments['name'])}")
        case "odd":
            return {
                "content": [5, {}, {"type": "hologram"}, {"type": "image", "data": "?"}, {"type": "text"}]
            }
        case "pid":
            return _text(str(os.getpid()))
        case _:
            return "refuse"


@contextlib.contextmanager
def http_server(*habits: str, answers: bytes | None = None, **headers: str) -> Generator[str]:
    """The same server by streamable HTTP. Yields its URL. answers: the body of every answer, with `headers`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["content-length"])))
            sent: list[Any] = []
            if "id" in message and "method" in message:
                answer(message, list(habits), sent.append)
            body = answers if answers is not None else json.dumps(sent[0]).encode() if sent else b""
            self.send_response(200 if body else 202)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_error(405)

        do_DELETE = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
