"""The Ray head that `jan-serve cluster up` starts where no Ray cluster runs yet, and the record of what it started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import psutil

from jan_serve.cluster.cluster_file import ClusterFile
from jan_serve.cluster.ray_serve import ClusterFailed, prepare
from jan_serve.errors import StoreError
from jan_serve.store.files import private_folder, write_atomically

OBJECT_STORE_BYTES: Final = 80 << 20
"""About Ray's minimum: nothing of ours is stored there."""
START_S: Final = 120.0
_END_S: Final = 30.0
_POLL_S: Final = 0.25
_STARTED: Final = "Ray runtime started"


class RayHead(msgspec.Struct, frozen=True):
    """A running `ray start --head --block`. started: since the epoch; tells it from a later process of this number."""

    pid: int
    started: float


def ray_program() -> str:
    """`ray` of this environment. Raises ClusterFailed."""
    beside = Path(sys.executable).with_name("ray")
    found = str(beside) if beside.exists() else shutil.which("ray")
    if found is None:
        raise ClusterFailed("there is no program `ray` beside this Python")
    return found


def make_token() -> None:
    """The token of this user for Ray, in ~/.ray/auth_token unless RAY_AUTH_TOKEN has it. Raises ClusterFailed."""
    prepare()
    done = _ran(["get-auth-token", "--generate"], os.environ)
    if done.returncode != 0:
        raise ClusterFailed(f"Ray has no token: {done.stderr.strip()[-500:]}")


def requires_token(address: str) -> bool:
    """Whether the cluster refuses a client without a token. Blocks for some seconds. Raises ClusterFailed."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH_TOKEN")}
    done = _ran(["health-check", "--address", address], variables | {"RAY_AUTH_MODE": "disabled"})
    if done.returncode != 0 and "InvalidAuthToken" not in done.stderr + done.stdout:
        raise ClusterFailed(f"no Ray cluster answers at {address}")
    return done.returncode != 0


def _ran(words: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """`ray` with these words, once it has ended. Raises ClusterFailed if it does not."""
    command = [ray_program(), *words]
    try:
        return subprocess.run(
            command, env=variables, capture_output=True, text=True, check=False, timeout=START_S
        )
    except subprocess.TimeoutExpired:
        raise ClusterFailed(f"`ray {words[0]}` did not end within {START_S:.0f} s") from None


def start_head(host: str, port: int, log: Path, pause: Callable[[float], None] = time.sleep) -> RayHead:
    """Blocks until it runs. It outlives this process and its terminal. Raises ClusterFailed."""
    prepare()
    private_folder(log.parent)
    command = [ray_program(), "start", "--head", "--block", f"--node-ip-address={host}", f"--port={port}"]
    command += ["--include-dashboard=false", "--disable-usage-stats"]
    head = _spawn([*command, f"--object-store-memory={OBJECT_STORE_BYTES}"], log)
    deadline = time.monotonic() + START_S
    while _STARTED not in (text := log.read_text(encoding="utf-8", errors="replace")):
        if not is_running(head):
            raise ClusterFailed(f"Ray did not start: {_reason(text)}", f"{log} has its output.")
        if time.monotonic() > deadline:
            stop_head(head)
            raise ClusterFailed(f"Ray did not start within {START_S:.0f} s", f"{log} has its output.")
        pause(_POLL_S)
    return head


def _spawn(command: list[str], log: Path) -> RayHead:
    """Start the program in a session of its own. It is nobody's to wait for, and its log is its owner's alone."""
    write_log = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC
    files = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), write_log, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=files, setsid=True)
    return RayHead(pid, psutil.Process(pid).create_time())


def is_running(head: RayHead) -> bool:
    try:
        process = psutil.Process(head.pid)
        return process.create_time() == head.started and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def stop_head(head: RayHead) -> None:
    """End it and the processes that it started, and no other Ray process of this machine. Blocks."""
    if not is_running(head):
        return
    process = psutil.Process(head.pid)
    family = [process, *process.children(recursive=True)]
    process.send_signal(signal.SIGTERM)
    _, left = psutil.wait_procs(family, _END_S)
    for each in left:
        each.kill()
    psutil.wait_procs(left, _END_S)


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:500] if lines else "it said nothing"


class ClusterRecord(msgspec.Struct, frozen=True):
    """Holds keys. address: of Ray. head: None if `up` did not start Ray."""

    address: str
    file: ClusterFile
    head: RayHead | None = None


def read_record(path: Path) -> ClusterRecord | None:
    """None if nothing was started here. Raises StoreError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterRecord)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        then = "delete it; `ray stop` ends the Ray processes of a machine"
        raise StoreError(f"{path} is damaged ({error}): {then}") from None


def write_record(path: Path, record: ClusterRecord) -> None:
    """Readable by this user only. Raises StoreError."""
    try:
        private_folder(path.parent)
        write_atomically(path, msgspec.json.encode(record), mode=0o600)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from None


def forget_record(path: Path) -> None:
    path.unlink(missing_ok=True)


def record_file(data_dir: Path) -> Path:
    return data_dir / "cluster.json"
