"""What is fuzzed of files: those of models, of the state on disk and of the configuration, and what hubs send."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import random
import shutil
import tempfile
import tomllib
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

from jan_serve.cluster.cluster_file import read_cluster_file
from jan_serve.cluster.head import read_record, record_file
from jan_serve.config.settings_loader import load_settings
from jan_serve.control.control_plane import try_model
from jan_serve.errors import InvalidModel, InvalidRequest, JanServeError, SettingsError, StoreError
from jan_serve.ipc.messages import EngineSettings
from jan_serve.proxy.fleet_file import FleetFile
from jan_serve.resources import builtin_model
from jan_serve.store.gguf.gguf_header import read_gguf_header
from jan_serve.store.gguf.model_file import read_model_file, read_projector
from jan_serve.store.gguf.weight_update import WeightUpdate
from jan_serve.store.hub.hub_http import HubAccess
from jan_serve.store.hub.pull import Puller
from jan_serve.store.hub.retries import RetryPolicy
from jan_serve.store.index import ModelIndex, VariantIndex
from jan_serve.store.measurements import CalibrationIndex, SelfChecks
from jan_serve.store.resolve import ModelResolver
from jan_serve.supervisor.limits import WorkerLimits
from jan_serve.supervisor.workers.child_process import own_command
from tests.fuzz import file_seeds as seeds
from tests.fuzz.judging import Finding, Fuzz, judging
from tests.fuzz.mutate import changed, damaged, rewritten

WORKER_LIMITS: Final = WorkerLimits(load_s=300.0, silent_s=120.0)


def damaged_json(draw: random.Random, content: bytes) -> bytes:
    """Half of the time its values are changed, else its bytes."""
    if draw.random() < 0.5:
        return damaged(draw, content, (content,))
    return json.dumps(changed(draw, json.loads(content))).encode()


@contextlib.contextmanager
def folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@asynccontextmanager
async def gguf() -> AsyncGenerator[Fuzz]:
    """Headers of model files. Those of the built-in model come without its tensors: the file is sparse."""
    builtin = builtin_model()
    assert builtin is not None
    header = read_gguf_header(builtin)
    whole = (builtin.read_bytes()[: header.data_offset], builtin.stat().st_size)
    small = [(data, len(data)) for data in seeds.MODELS]
    with folder() as place:
        path = place / "model.gguf"

        async def one(draw: random.Random) -> str:
            data, size = whole if draw.random() < 0.1 else draw.choice(small)
            content = damaged(draw, data, (data, *seeds.MODELS))
            path.write_bytes(content)
            with path.open("r+b") as file:
                file.truncate(max(len(content), size) if draw.random() < 0.8 else len(content))
            try:
                with judging(content):
                    read_model_file(path).facts()
            except JanServeError as error:
                with contextlib.suppress(JanServeError), judging(content):
                    read_projector(path)
                return error.code
            return "read"

        yield one


@asynccontextmanager
async def tensors() -> AsyncGenerator[Fuzz]:
    """Files with tensors that replace those of a model: what is merged is a model that can be read."""
    with folder() as place:
        base = place / "base.gguf"
        base.write_bytes(seeds.BASE)
        update = WeightUpdate(place / "updates")

        async def one(draw: random.Random) -> str:
            parts = [
                damaged(draw, draw.choice(seeds.TENSORS), seeds.TENSORS) for _ in range(draw.randint(1, 2))
            ]
            data = b"".join(parts)
            try:
                with judging(data):
                    for part in parts:
                        update.add(base, part)
                    merged = update.merge()
            except InvalidRequest as error:
                return error.code
            with judging(data):
                old, new = read_gguf_header(base), read_gguf_header(merged.path)
            if [(each.name, each.shape) for each in new.tensors] != [
                (each.name, each.shape) for each in old.tensors
            ]:
                raise Finding("the merged model has other tensors", data)
            update.delete(merged)
            return "merged"

        yield one
        update.close()


@asynccontextmanager
async def loads() -> AsyncGenerator[Fuzz]:
    """The built-in model with damage in its header and tensors, in llama.cpp: only the worker may end."""
    builtin = builtin_model()
    assert builtin is not None
    data, offset = builtin.read_bytes(), read_gguf_header(builtin).data_offset
    with folder() as place:
        path = place / "model.gguf"

        async def one(draw: random.Random) -> str:
            header, weights = data[:offset], data[offset:]
            part = draw.choice(("header", "weights", "both"))
            if part != "weights":
                header = damaged(draw, header, (header,))
            if part != "header":
                weights = damaged(draw, weights)
            path.write_bytes(header + weights)
            try:
                with judging(header):
                    read_model_file(path).facts()
                    await try_model("m", str(path), EngineSettings(), own_command("worker"), WORKER_LIMITS)
            except InvalidModel as error:
                if "no progress" in error.message or "Traceback" in error.message:
                    raise Finding(error.message, header) from error
                return "the worker ended" if "signal" in error.message else error.code
            except JanServeError as error:
                return error.code
            return "loaded"

        yield one


Reader = Callable[[Path], object]
READERS: Final[dict[str, Reader]] = {
    "record": lambda place: (ModelIndex(place).records(), ModelResolver(place).entries()),
    "variant": lambda place: (VariantIndex(place).all(), ModelResolver(place).entries()),
    "calibration": lambda place: CalibrationIndex(place).get(seeds.ENTRY),
    "self-check": lambda place: SelfChecks(place).before("1.0.0"),
}
"""These leave out what is damaged, and never fail."""


@asynccontextmanager
async def records() -> AsyncGenerator[Fuzz]:
    """The state on disk: records of models, variants, calibrations, self-checks, the proxy's nodes, a cluster."""
    with folder() as place:

        async def one(draw: random.Random) -> str:
            name, (path, content) = draw.choice(list(seeds.STATE.items()))
            data = damaged_json(draw, content)
            target = place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            try:
                return name + (" kept" if await _read(name, place, target, data) else " refused")
            finally:
                shutil.rmtree(place / path.parts[0]) if len(path.parts) > 1 else target.unlink(
                    missing_ok=True
                )

        yield one


async def _read(name: str, place: Path, path: Path, data: bytes) -> bool:
    """Whether something was read. Raises Finding."""
    with judging(data):
        try:
            if name == "nodes":
                fleet = FleetFile(path)
                try:
                    return bool(fleet.open()[0])
                finally:
                    await fleet.close()
            if name == "cluster":
                return read_record(record_file(place)) is not None
            found = READERS[name](place)
        except (StoreError, SettingsError) as error:
            if name in READERS:
                raise Finding(f"{type(error).__name__}: {error}", data) from error
            return False
    return any(cast(tuple[object, ...], found)) if isinstance(found, tuple) else found is not None


@asynccontextmanager
async def settings() -> AsyncGenerator[Fuzz]:
    """Configuration files of servers and clusters, when a server starts, and while it runs."""
    with folder() as place:
        path = place / "config.toml"
        for name in seeds.CONFIGURED_FILES:
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text("x")
        path.write_text(seeds.CONFIGS[0])
        running = load_settings(config_file=path).book()

        async def one(draw: random.Random) -> str:
            text = draw.choice(seeds.CONFIGS)
            if draw.random() < 0.5:
                text = rewritten(draw, text, seeds.CONFIGS)
            else:
                text = seeds.as_toml(changed(draw, tomllib.loads(text), seeds.CONFIG_VALUES))
            data = text.encode("utf-8", "surrogatepass")
            if draw.random() < 0.2:
                data = damaged(draw, data)
            path.write_bytes(data)
            with judging(data):
                running.tables()
            outcomes = [await one_of(read, data) for read in (_server_settings, read_cluster_file)]
            return "refused" if outcomes == ["refused"] * 2 else "read"

        async def one_of(read: Reader, data: bytes) -> str:
            try:
                with judging(data):
                    read(path)
            except SettingsError:
                return "refused"
            return "read"

        yield one


def _server_settings(path: Path) -> None:
    loaded = load_settings(config_file=path)
    loaded.rows()
    loaded.model_rows()
    loaded.book().tables()


class Hub:
    """Answers the requests of a pull from a script, on a port of its own."""

    def __init__(self) -> None:
        self.listing = self.file = b""
        self.port = 0

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(self.listing if b" /api/" in head else self.file)
            await writer.drain()
        writer.close()


class NoWatcher:
    """As DownloadWatcher."""

    def received(self, n_bytes: int) -> None: ...

    def note(self, text: str) -> None: ...


@asynccontextmanager
async def hub() -> AsyncGenerator[Fuzz]:
    """What a hub answers, as raw HTTP: a listing and a file. No other bytes than the listed ones become a model."""
    answers = Hub()
    policy = RetryPolicy(connect_s=5.0, read_s=5.0, answer_s=10.0, tries=2, backoff_s=0.0, max_wait_s=0.0)
    async with await asyncio.start_server(answers.serve, "127.0.0.1", 0) as server:
        answers.port = server.sockets[0].getsockname()[1]

        async def one(draw: random.Random) -> str:
            answers.listing, answers.file = seeds.hub_answers(draw, answers.authority)
            data = answers.listing + b"\n----\n" + answers.file
            with folder() as place:
                puller = Puller(place, HubAccess(f"http://{answers.authority}"), retry_policy=policy)
                try:
                    with judging(data):
                        plan = await puller.plan("org/repo")
                        record = await puller.run(plan, NoWatcher())
                except JanServeError as error:
                    return error.code
                for file in record.files:
                    if hashlib.sha256((place / file.path).read_bytes()).hexdigest() != file.sha256:
                        raise Finding(f"{file.path} has other bytes than listed", data)
                return "pulled"

        yield one
