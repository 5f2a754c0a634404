"""Runs the tools of an installation: their output goes to a log, and one line tells of a failure."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

from scripts.installer import errors

_KEPT_LINES: Final = 400


def say(text: str) -> None:
    """A line of the installation's progress."""
    print(f"==> {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _ended_with_us(process: subprocess.Popen[str]) -> Generator[None]:
    """End the process and its children if the block is interrupted."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        raise


def run(
    what: str,
    command: Sequence[str | Path],
    log: Path,
    *,
    variables: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> str:
    """Run to the end and return the last lines of its output. Raises InstallError.

    log: a file that gets all output; on_line: called with each line.
    """
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with (
            log.open("w", encoding="utf-8") as file,
            subprocess.Popen(
                [os.fspath(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(variables or {})},
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            ) as process,
            _ended_with_us(process),
        ):
            assert process.stdout is not None
            for line in process.stdout:
                last.append(line)
                file.write(line)
                file.flush()
                if on_line is not None:
                    on_line(line)
            status = process.wait()
    except OSError as error:
        raise errors.of_os_error(what, error) from error
    output = "".join(last)
    if status != 0:
        raise errors.of_output(what, output if status > 0 else f"{output}\nKilled by signal {-status}", log)
    return output
