"""Asks a worker process for the version, features and devices of llama.cpp.

Commands never load llama.cpp themselves: a build that crashes on this machine crashes only the probe.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from jan_serve.supervisor.workers.child_process import child_environment, own_command

_PROBE_COMMAND: Final = (*own_command("worker"), "--probe")
_PROBE_TIMEOUT_S: Final = 60.0


class ProbeFailed(Exception):
    """The message gives the reason."""


def probe_engine(
    command: Sequence[str] = _PROBE_COMMAND,
    timeout_s: float = _PROBE_TIMEOUT_S,
    peers: Sequence[str] = (),
) -> dict[str, Any]:
    """Version, features and devices of llama.cpp, with those of peers. Blocks for about a second. Raises ProbeFailed.

    peers: HOST:PORT of machines that lend devices.
    """
    try:
        done = subprocess.run(
            [*command, *peers],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env=child_environment(os.environ),
        )
    except subprocess.TimeoutExpired:
        raise ProbeFailed(f"llama.cpp did not answer within {timeout_s:g} s") from None
    except OSError as error:
        raise ProbeFailed(f"cannot start a worker process: {error.strerror}") from None
    last_line = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
    if done.returncode != 0:
        ending = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise ProbeFailed(f"llama.cpp does not start ({ending}): {''.join(last_line) or 'no message'}")
    for line in reversed(done.stdout.splitlines()):
        try:
            return msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            continue  # native code may print other lines
    raise ProbeFailed("the worker printed nothing about llama.cpp")


def device_names(engine: dict[str, Any]) -> list[str]:
    """Names that --device takes."""
    return [str(device["name"]) for device in engine.get("devices", [])]
