"""Starts an installed jan-serve: tests the page, chats, a schema, selfcheck and a stop. Only the standard library.

    python3 packaging/smoke.py PROGRAM [ARGUMENT ...]
    python3 packaging/smoke.py --service COMMAND [ARGUMENT ...]

PROGRAM is for example /usr/bin/jan-serve; it serves with a temporary data folder. COMMAND is the command of a service
manager, with the folders of the service. Both use a free port and the built-in model. Prints each result and exits at
the first failed check.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from typing import Any

START_S = 120
ANSWER_S = 120
STOP_S = 40
_URL = re.compile(r"url\s+(http://\S+)")


class Server:
    """The server process. `lines` is its log."""

    def __init__(self, command: list[str], variables: dict[str, str], folder: Path) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **variables, "JAN_SERVE_PORT": "0"},
            cwd=folder,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())

    def url(self) -> str:
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.process.poll() is None:
            found = _URL.search("\n".join(self.lines))
            if found is not None:
                return found[1]
            time.sleep(0.05)
        raise SystemExit("the server did not start:\n" + "\n".join(self.lines))

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(STOP_S)
        if status != 0:
            raise SystemExit(f"the server ended with {status}:\n" + "\n".join(self.lines))


def call(url: str, path: str, body: object = None, accept: str = "*/*") -> tuple[Any, bytes]:
    """(headers, body) of a successful answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"accept": accept, "content-type": "application/json"}
    request = urllib.request.Request(url + path, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
            return response.headers, response.read()
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{path}: {error}: {error.read().decode()}") from None


def chat(url: str, question: object, **fields: object) -> str:
    """The text of an answer. question: a text, or parts."""
    message = {"role": "user", "content": question}
    _, body = call(url, "/v1/chat/completions", {"messages": [message], "temperature": 0, **fields})
    text: str = json.loads(body)["choices"][0]["message"]["content"]
    return text


def square() -> str:
    """A data URL: a red square on white, a PNG of 32 by 32 pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    blank = b"\0" + b"\xff" * 96
    crossed = b"\0" + b"\xff" * 24 + b"\xff\0\0" * 16 + b"\xff" * 24
    header = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
    rows = zlib.compress(blank * 8 + crossed * 16 + blank * 8)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def check(name: str, passed: bool, value: object = "") -> None:
    """Print the result, or exit with the failure."""
    if not passed:
        raise SystemExit(f"failed: {name}: {value}")
    print(f"ok  {name}{f': {value}' if value else ''}")


def use(url: str) -> None:
    """The checks that every package must pass."""
    _, health = call(url, "/health")
    check("it is healthy", json.loads(health)["status"] == "ok", json.loads(health)["version"])
    headers, page = call(url, "/", accept="text/html")
    check("the page is there", page.startswith(b"<!doctype html>"), f"{len(page)} bytes")
    check("its policy is strict", "default-src 'none'" in headers["content-security-policy"])
    assets = re.findall(r'(?:src|href)="(assets/[^"]+)"', page.decode())
    sizes = [len(call(url, f"/{asset}")[1]) for asset in assets]
    check("it is the built page, whole", len(sizes) == 4 and max(sizes) > 100_000, sizes)
    answer = chat(url, "Who are you?")
    check("the built-in model answers", bool(answer.strip()), answer)
    asked = {"type": "text", "text": "What is in this picture?"}
    seen = chat(url, [{"type": "image_url", "image_url": {"url": square()}}, asked])
    check("it sees a picture", seen == "I see a red square.", seen)
    number = {"n": {"enum": [1, 2]}}
    schema = {"type": "object", "properties": number, "required": ["n"], "additionalProperties": False}
    shape = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    chosen = json.loads(chat(url, "One or two?", response_format=shape))["n"]
    check("a schema is kept", chosen in (1, 2), chosen)
    _, grammar = call(url, "/extras/grammar", {"grammar": "yes-no"})
    check("the grammars are there", b"root" in grammar)


def main() -> None:
    arguments = sys.argv[1:]
    service = arguments[:1] == ["--service"]
    if not arguments[service:]:
        raise SystemExit(__doc__)
    program = shutil.which(arguments[service])
    check("the program is there", program is not None, program)
    command = [os.path.abspath(str(program)), *arguments[service + 1 :]]
    with tempfile.TemporaryDirectory(prefix="jan-serve-smoke-") as folder:
        variables: dict[str, str] = {}
        if not service:
            version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
            check("--version", bool(re.search(r"\d+\.\d+", version.stdout)), version.stdout.strip())
            config = Path(folder) / "config.toml"
            config.write_text(f'data_dir = "{Path(folder).as_posix()}/data"\n', encoding="utf-8")
            variables = {"JAN_SERVE_CONFIG": str(config)}
            done = subprocess.run(
                [*command, "selfcheck"], capture_output=True, text=True, env={**os.environ, **variables}
            )
            check("selfcheck", done.returncode == 0, done.stderr.strip())
            command.append("serve")
        server = Server(command, variables, Path(folder))
        try:
            use(server.url())
            server.stop()
            check("it stops on SIGTERM", True)
        except SystemExit:
            print("\n".join(server.lines), file=sys.stderr)
            raise
        finally:
            if server.process.poll() is None:
                server.process.kill()


if __name__ == "__main__":
    main()
