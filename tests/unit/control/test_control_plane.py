"""The control routes of LMDeploy, and new weights."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest

from jan_serve.control import control_plane
from jan_serve.control.control_plane import WeightUpdater, delete_states
from jan_serve.errors import InsufficientMemory, InvalidModel, InvalidRequest, JanServeError
from jan_serve.store.gguf.weight_update import WeightUpdate
from jan_serve.supervisor.limits import WorkerLimits
from tests.support.engine.engines import FakeResolver
from tests.unit.store.gguf_builder import GgufBytes, Tensor


def test_states_of_every_worker_are_deleted(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two" / "deeper").mkdir(parents=True)
    deleted = ["one/a.state", "one/b.partial", "two/c.state"]
    kept = ["one/a.txt", "two/deeper/a.state", "a.state"]
    for name in (*deleted, *kept):
        (tmp_path / name).write_bytes(b"x")
    delete_states(tmp_path)
    left = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(kept)
    delete_states(tmp_path / "absent")


def test_a_file_in_use_remains_and_the_others_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "w" / f"{name}.state").write_bytes(b"x")
    unlink = Path.unlink

    def refuse_one(path: Path, missing_ok: bool = False) -> None:
        if path.name == "b.state":
            raise PermissionError("in use")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse_one)
    delete_states(tmp_path)
    assert [path.name for path in (tmp_path / "w").iterdir()] == ["b.state"]


pytestmark = pytest.mark.anyio

MARK = bytes(range(1, 33))


class Server:
    """An updater over one model; `problem` is how its next load ends, `trial` how the trial does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "a.gguf").write_bytes(weights(1.0))
        self.sources = FakeResolver(folder, ("a",))
        self.collected = WeightUpdate(folder / "updates")
        self.loads: list[str] = []
        self.tried: list[str] = []
        self.problem: BaseException | None = None
        self.trial: JanServeError | None = None
        self.awake = True
        self.updater = WeightUpdater(
            self.sources,
            self.sources.updated,
            self.load,
            self.collected,
            ("worker",),
            WorkerLimits(),
            may_load=lambda: self.awake,
        )

    async def load(self, name: str | None) -> str:
        self.loads.append(self.serves())
        if self.problem is not None:
            raise self.problem
        return "a"

    async def try_model(self, name: str, path: str, *rest: object) -> None:
        assert Path(path).is_file()
        self.tried.append(path)
        if self.trial is not None:
            raise self.trial

    def serves(self) -> str:
        return self.sources.resolve("a").source.path

    def value(self) -> float:
        """The value of the first tensor of the file that is served."""
        content = Path(self.serves()).read_bytes()
        place = content.index(MARK)
        return struct.unpack("<e", content[place - 2 : place])[0]

    def files(self) -> set[str]:
        return {path.name for path in (self.folder / "updates").rglob("*.gguf")}


def tensor(value: float) -> Tensor:
    return Tensor("token_embd.weight", data=struct.pack("<e", value) + MARK)


def weights(value: float) -> bytes:
    return GgufBytes(tensors=(tensor(value), Tensor("blk.0.ffn_up.weight"))).build()


def update(value: float) -> bytes:
    return GgufBytes(architecture=None, tensors=(tensor(value),)).build()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server(tmp_path)
    monkeypatch.setattr(control_plane, "try_model", made.try_model)
    return made


async def test_parts_are_collected_then_tried_then_served(server: Server) -> None:
    await server.updater.add("a", [update(2.0)], finished=False)
    assert (server.tried, server.loads, server.serves()) == ([], [], str(server.folder / "a.gguf"))
    await server.updater.add("a", [], finished=True)
    assert server.tried == server.loads == [server.serves()]
    assert server.value() == 2.0
    assert (server.folder / "a.gguf").read_bytes() == weights(1.0)


async def test_the_next_update_replaces_the_file_of_the_last(server: Server) -> None:
    await server.updater.add(None, [update(2.0)], finished=True)
    await server.updater.add(None, [update(3.0)], finished=True)
    assert server.value() == 3.0
    assert server.files() == {Path(server.serves()).name}
    await server.updater.close()
    assert server.files() == set()


async def test_while_the_server_sleeps_nothing_is_loaded(server: Server) -> None:
    server.awake = False
    await server.updater.add("a", [update(2.0)], finished=True)
    assert (server.loads, server.value()) == ([], 2.0)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    ("problem", "raised"),
    [
        (InsufficientMemory("too little memory", retry_after=None), InsufficientMemory),
        (InvalidModel("it needs an accelerator"), InvalidRequest),
        (asyncio.CancelledError(), asyncio.CancelledError),
        (RuntimeError("a fault of ours"), RuntimeError),
    ],
)
async def test_a_load_that_fails_leaves_the_old_weights(
    server: Server, is_first: bool, problem: BaseException, raised: type[BaseException]
) -> None:
    if not is_first:
        await server.updater.add("a", [update(2.0)], finished=True)
    before, files = server.serves(), server.files()
    server.problem = problem
    with pytest.raises(raised):
        await server.updater.add("a", [update(3.0)], finished=True)
    assert (server.serves(), server.files()) == (before, files)
    server.problem = None
    await server.updater.add("a", [update(4.0)], finished=True)
    assert server.value() == 4.0


@pytest.mark.parametrize(
    ("problem", "raised", "says"),
    [
        (InvalidModel("it computes nothing"), InvalidRequest, "the old ones stay: it computes nothing"),
        (InsufficientMemory("too little memory", retry_after=None), InsufficientMemory, "too little memory"),
    ],
)
async def test_weights_that_fail_their_trial_are_not_served(
    server: Server, problem: JanServeError, raised: type[JanServeError], says: str
) -> None:
    server.trial = problem
    with pytest.raises(raised, match=says):
        await server.updater.add("a", [update(2.0)], finished=True)
    assert (server.loads, server.serves(), server.files()) == ([], str(server.folder / "a.gguf"), set())


async def test_bad_tensors_discard_the_update(server: Server) -> None:
    await server.updater.add("a", [update(2.0)], finished=False)
    with pytest.raises(InvalidRequest, match="not a GGUF file"):
        await server.updater.add("a", [b"text"], finished=True)
    with pytest.raises(InvalidRequest, match="no weights were sent"):
        await server.updater.add("a", [], finished=True)
    assert (server.tried, server.files()) == ([], set())
