"""`jan-serve serve` as users start it: a process on a free port, whose log is read continuously."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import wait_until

_URL = re.compile(r"url\s+(http://\S+)")


class Served:
    """A running server. `lines`: its standard error so far, the banner first."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def url(self, limit_s: float = 60.0) -> str:
        """Its URL; waits for the banner. Fails if the process ends first."""

        def seen() -> bool:
            return self._found_url() is not None or self.process.poll() is not None

        wait_until(seen, limit_s)
        self._join_if_ended()
        url = self._found_url()
        assert url is not None, f"ended with {self.process.returncode}:\n{self.log}"
        return url

    def wait(self, limit_s: float = 60.0) -> int:
        """The exit status; `log` is complete then."""
        status = self.process.wait(limit_s)
        self._join_if_ended()
        return status

    def _found_url(self) -> str | None:
        match = _URL.search(self.log)
        return match[1] if match else None

    def _join_if_ended(self) -> None:
        if self.process.poll() is not None:
            self._reader.join(5)


@contextmanager
def serving(folder: Path, *flags: str) -> Generator[Served]:
    """Start `jan-serve serve` with its folders in `folder`; kills the rest of it at the end."""
    config = folder / "config.toml"
    if not config.exists():
        config.write_text('data_dir = "data"\n', encoding="utf-8")
    command = [sys.executable, "-P", "-m", "jan_serve", "serve", *flags]
    with running(folder, command, {"JAN_SERVE_CONFIG": str(config)}) as served:
        yield served


@contextmanager
def running(
    folder: Path,
    command: Sequence[str],
    variables: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> Generator[Served]:
    """Start a server command in `folder`; kills the rest of it at the end. pass_fds: it inherits these."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAN_SERVE_")}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**environment, **(variables or {})},
        text=True,
        errors="replace",
        cwd=folder,
        pass_fds=pass_fds,
    )
    served = Served(process)
    try:
        yield served
    finally:
        if process.poll() is None:
            process.kill()
        served.wait(60)
        assert process.stderr is not None
        process.stderr.close()
