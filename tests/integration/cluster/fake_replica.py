"""Run as a script: in place of `jan-serve cluster-replica`. Takes the settings, serves /health, ends with its input.

The settings `fails`, `silent` (no HTTP), `stays` (beyond its input) and `open_requests` say how it behaves. At its end
it writes the file `ended`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

COMMAND = (sys.executable, __file__)


def _main() -> None:
    settings: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    sys.stderr.write("the settings came\n")
    if settings.get("fails"):
        sys.exit(4)

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"status": "ok", "open_requests": settings.get("open_requests", 0)}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = HTTPServer((settings["host"], 0), Health)
    sys.stdout.write(f"http://{settings['host']}:{server.server_port}\n")
    sys.stdout.flush()
    if settings.get("silent"):
        server.server_close()
    else:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    with open(settings["notes"] + "/variables", "w", encoding="utf-8") as file:
        json.dump(dict(os.environ), file)
    sys.stdin.buffer.read()
    if settings.get("stays"):
        signal.pause()
    with open(settings["notes"] + "/ended", "w", encoding="utf-8"):
        pass


if __name__ == "__main__":
    _main()
