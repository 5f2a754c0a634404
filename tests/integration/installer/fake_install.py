"""A checkout whose interpreter only pretends to install: what it was asked for is logged, and it fails when told to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CONSTRAINTS = ("constraints.txt", "constraints-dev.txt", "constraints-cluster.txt")

# Runs the installer itself with the real Python. FAKE_FAILS: a part of the command to fail at; FAKE_SAYS: what it
# prints then; FAKE_UNLESS: a variable with which it does not fail. FAKE_WAITS: a part of the command at which it writes
# to the pipe `begun` and reads from the pipe `go`.
_PYTHON = """#!/usr/bin/env bash
case "$*" in "-m scripts.installer"*) exec "$FAKE_REAL" "$@" ;; "-c "*) exit 0 ;; esac
exec "$FAKE_HOME/tool" python "$@"
"""
_TOOL = """#!/usr/bin/env bash
echo "$*" >>"$FAKE_HOME/calls"
if [ -n "${FAKE_WAITS:-}" ] && [[ "$*" == *"$FAKE_WAITS"* ]]; then
    echo >"$FAKE_HOME/begun"; read -r _ <"$FAKE_HOME/go"
fi
unless=${FAKE_UNLESS:-FAKE_NEVER}
if [ -n "${FAKE_FAILS:-}" ] && [[ "$*" == *"$FAKE_FAILS"* ]] && [ -z "${!unless:-}" ]; then
    echo "$FAKE_SAYS"; exit 1
fi
previous=
for word; do
    case "$previous" in
        --wheel-dir) echo "[1/2] Building"; cp "$FAKE_HOME"/*.whl "$word" ;;
        --target) mkdir -p "$word/bin"; cp "$FAKE_HOME/uv" "$word/bin/uv" ;;
    esac
    previous=$word
done
"""


class FakeCheckout:
    """A checkout in `folder` with the real scripts, and an environment that is there already but empty."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        self.home = folder / "fake home"
        self.cache = folder / "cache"
        self.temporary = folder / "temporary"
        self.home.mkdir()
        self.temporary.mkdir()
        for name in ("kernels", "scripts"):
            shutil.copytree(ROOT / name, self.root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in (*CONSTRAINTS, "pyproject.toml"):
            shutil.copy(ROOT / name, self.root)
        _program(self.root / ".venv" / "bin" / "python", _PYTHON)
        _program(self.home / "tool", _TOOL)
        _program(self.home / "uv", '#!/bin/sh\nexec "$FAKE_HOME/tool" uv "$@"\n')
        self.begun, self.go = self.home / "begun", self.home / "go"
        os.mkfifo(self.begun)
        os.mkfifo(self.go)
        with zipfile.ZipFile(self.home / "llama_cpp_python-0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("llama_cpp/lib/libllama.so", "")
            wheel.writestr("llama_cpp/lib/libmtmd.so", "")

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """scripts/install with these variables; its messages are in stderr."""
        environment = {
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.temporary),
            "HOME": str(self.home),
            "XDG_CACHE_HOME": str(self.cache),
            "FAKE_HOME": str(self.home),
            "FAKE_REAL": sys.executable,
            **variables,
        }
        return subprocess.Popen(
            [str(self.root / "scripts" / "install"), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def install(self, *arguments: str, **variables: str) -> tuple[int, list[str]]:
        """Its status and messages."""
        with self.start(*arguments, **variables) as process:
            _, messages = process.communicate(timeout=60)
        return process.returncode, messages.splitlines()

    def calls(self) -> list[str]:
        """What the tools were asked for since the last call."""
        path = self.home / "calls"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
