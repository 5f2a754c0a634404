"""The server under test, with its folders, on a socket that outlives it; and what belongs to it on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Final

import gguf
import psutil

from models.recipe.fixtures import write_tiny_bert, write_tiny_llama
from models.recipe.projector_fixtures import write_tiny_projector
from tests.chaos.questions import EMBEDDER, SEER, WRITER
from tests.support.activation import activated
from tests.support.processes import HELPERS

_MARK: Final = "CHAOS_RUN"
_CONFIG: Final = """
data_dir = {data!r}
models_dir = {models!r}
model = "jan-tiny"
idle_exit_s = 0
drain_timeout_s = 5
write_timeout_s = 20
n_ctx = 4096
parallel = 6
threads = 1
flash_attn = "off"
type_k = "f32"
type_v = "f32"
cache_ram_mib = 32
cache_disk_mib = 8
"""
_CLOCK: Final = """
import mmap, os, struct, time
with open(os.environ["CHAOS_CLOCK"], "rb") as file:
    _offset = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
_seconds, _nanoseconds = time.time, time.time_ns
time.time = lambda: _seconds() + struct.unpack("<q", _offset[:8])[0]
time.time_ns = lambda: _nanoseconds() + struct.unpack("<q", _offset[:8])[0] * 10**9
"""
"""Every process of the server imports it at its start (`sitecustomize`): the file has seconds that are added."""
_DISK_MIB: Final = 48


Window = tuple[float, float]
"""From, to, by time.monotonic."""


def overlap(windows: Iterable[Window], start: float, end: float) -> bool:
    """Whether one of them falls into this time."""
    return any(begin <= end and start <= over for begin, over in windows)


class World:
    """disk: the folder that can be full; a file system of its own if `is_mounted`."""

    def __init__(self, folder: Path, *, is_mounted: bool, settings: str) -> None:
        self.folder = folder
        self.disk = folder / "disk"
        self.is_mounted = is_mounted
        self.data = self.disk / "data"
        self.temporary = self.disk / "tmp"
        self.models = folder / "models"
        self.pristine = folder / "pristine"
        self.config = folder / "config.toml"
        self.log = folder / "output"
        self.wrong: list[str] = []
        """What must not be, as far as a fault saw it."""
        self.kills: list[Window] = []
        self.restarts: list[Window] = []
        self.pauses: list[Window] = []
        self.shortages: list[Window] = []
        self.damages: list[tuple[Window, str]] = []
        self.removals: list[tuple[Window, str]] = []
        """When the server was killed, restarted, stopped or without descriptors; a model's file not whole, or gone."""
        self.command = [sys.executable, "-P", "-m", "jan_serve", "serve"]
        self.run = uuid.uuid4().hex
        self._clock = folder / "clock" / "offset"
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._socket.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        for made in (self.data, self.temporary, self.models, self.pristine, self._clock.parent):
            made.mkdir(parents=True, exist_ok=True)
        (self._clock.parent / "sitecustomize.py").write_text(_CLOCK, encoding="utf-8")
        self.set_clock(0)
        self.settings = _CONFIG.format(data=str(self.data), models=str(self.models)) + settings
        self.config.write_text(self.settings, encoding="utf-8")
        self._write_models()

    def _write_models(self) -> None:
        builtin = Path(__file__).resolve().parents[2] / "models" / "builtin" / "jan-tiny.gguf"
        write_exact(builtin, self.pristine / f"{WRITER}.gguf")
        write_tiny_bert(self.pristine / f"{EMBEDDER}.gguf", quantize=False)
        write_tiny_llama(self.pristine / f"{SEER}.gguf", quantize=False)
        write_tiny_projector(self.pristine / f"mmproj-{SEER}.gguf", "mlp")
        for file in self.pristine.iterdir():
            shutil.copyfile(file, self.models / file.name)

    def model_files(self) -> list[Path]:
        return sorted(self.models / file.name for file in self.pristine.iterdir())

    def restore(self, file: Path) -> None:
        """Put the model's file back as it was, as programs do: beside it, then by a rename."""
        beside = self.folder / f"new-{file.name}"
        shutil.copyfile(self.pristine / file.name, beside)
        beside.replace(file)

    def set_clock(self, seconds: int) -> None:
        """The server's wall clock is this much ahead from now on."""
        data = struct.pack("<q", seconds)
        if self._clock.exists():
            with self._clock.open("r+b") as file:  # the file is mapped by others
                file.write(data)
        else:
            self._clock.write_bytes(data)

    @property
    def process(self) -> psutil.Process:
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def start(self) -> None:
        """Start the server on the socket; clients may connect before it listens. Returns at once."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("JAN_SERVE_")}
        environment |= {
            _MARK: self.run,
            "CHAOS_CLOCK": str(self._clock),
            "PYTHONPATH": str(self._clock.parent),
            "JAN_SERVE_CONFIG": str(self.config),
            "TMPDIR": str(self.temporary),
        }
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                activated(self._socket.fileno(), self.command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=self.folder,
                pass_fds=[self._socket.fileno()],
                start_new_session=True,
            )

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self, limit_s: float) -> int:
        """The exit status. Blocks."""
        assert self._process is not None
        return self._process.wait(limit_s)

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def workers(self) -> list[psutil.Process]:
        return [child for child in self.children() if _last_word(child) == "worker"]

    def helpers(self, kind: str) -> list[psutil.Process]:
        """kind: `render`, `compile` or `images`."""
        assert [kind] in HELPERS
        return [child for child in self.children() if _last_word(child) == kind]

    def children(self) -> list[psutil.Process]:
        """Processes of the server, zombies included."""
        return self.process.children(recursive=True) if self.is_up else []

    def ours(self) -> list[psutil.Process]:
        """All processes of this run, whoever their parent is now; not zombies."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(_MARK) == self.run
        except psutil.Error:
            return False

    def end_of_orphans(self, limit_s: float) -> None:
        """Wait until no process of the run is left. Blocks."""
        end = time.monotonic() + limit_s
        while left := self.ours():
            if time.monotonic() > end:
                self.wrong.append(f"left behind: {[_words(each) for each in left]}")
                return
            time.sleep(0.05)

    async def answers(self) -> None:
        """Returns once the server answers at /health."""
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = await reader.read()
                writer.close()
                if answer.startswith(b"HTTP/1.1 200"):
                    return
            except ConnectionError:
                pass  # it ended with this connection in its hands
            await asyncio.sleep(0.05)

    def close(self) -> None:
        """Kill what is left."""
        self._socket.close()
        for process in self.ours():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._process is not None:
            self._process.wait(20)


def write_exact(source: Path, target: Path) -> None:
    """The same model in F32: what else is in the batch does not change its greedy choices then."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = int(gguf.LlamaFileType.ALL_F32) if field.name == "general.file_type" else field.contents()
        inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _last_word(process: psutil.Process) -> str:
    return (_words(process) or [""])[-1]


def limited(process: psutil.Process, kind: int, soft: int) -> tuple[int, int]:
    """Lower a limit of a running process; the limits it had."""
    _, hard = before = resource.prlimit(process.pid, kind)
    bounded = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    resource.prlimit(process.pid, kind, (bounded, hard))
    return before


@contextlib.contextmanager
def world(folder: Path, *, settings: str = "") -> Generator[World]:
    """A server's surroundings; nothing of it runs after the block. The server has not started.

    settings: lines for its configuration file.
    """
    disk = folder / "disk"
    disk.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "chaos", str(disk)]
    is_mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        made = World(folder, is_mounted=is_mounted, settings=settings)
        try:
            yield made
        finally:
            made.close()
    finally:
        if is_mounted:
            _unmount(disk)


def _unmount(disk: Path) -> None:
    """A process that was killed a moment ago may still hold it."""
    for _ in range(50):
        if subprocess.run(["umount", str(disk)], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.1)
    subprocess.run(["umount", "--lazy", str(disk)], check=True)
