"""Runs a client in a separate process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_HIDDEN = ("OPENAI", "ANTHROPIC", "OLLAMA", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def run_client(*command: str | Path) -> None:
    """Fails with the client's output unless it exits with 0. No environment variable redirects it."""
    environment = {name: value for name, value in os.environ.items() if not name.upper().startswith(_HIDDEN)}
    done = subprocess.run(
        command,
        cwd=_ROOT,
        env={**environment, "LANGSMITH_TRACING": "false", "NO_PROXY": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
