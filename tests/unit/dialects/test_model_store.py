"""Models on disk and in memory as one store; what is refused changes nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from jan_serve.api.management.pulls import Pulls
from jan_serve.core.models import PulledFile, Variant
from jan_serve.core.placement import MAX_DEFAULT_N_CTX, MIN_DEFAULT_N_CTX
from jan_serve.dialects.model_store import ModelStore
from jan_serve.errors import HubUnavailable, InvalidRequest, ModelNotFound
from jan_serve.store.hub.download import DownloadWatcher
from jan_serve.store.hub.pull import PullPlan
from jan_serve.store.hub.references import HubReference
from jan_serve.store.hub.repository import HubFile, HubModel
from jan_serve.store.index import ModelRecord, Source
from tests.support.engine.thread_engine import THREAD_ENGINE, thread_engines
from tests.support.servers.managed import Managed, add_model, managed_app
from tests.unit.store.gguf_builder import GgufBytes, strings_key, uint_key

pytestmark = pytest.mark.anyio

CONTENT = GgufBytes(keys=[uint_key("llama.embedding_length", 64)]).build()
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"

NO_CONTROL: Any = SimpleNamespace()


@pytest.fixture
async def managed(tmp_path: Path) -> AsyncGenerator[Managed]:
    add_model(tmp_path, "m", CONTENT)
    with thread_engines():
        async with managed_app(tmp_path, engine=THREAD_ENGINE) as made:
            yield made


def store_of(managed: Managed) -> ModelStore:
    return ModelStore(managed.manager, managed.library, Pulls(managed.library).events)


def variant(name: str = "pirate", base: str = "m") -> Variant:
    return Variant(name=name, base=base, created_at=0.0, system="Arr.")


async def names(store: ModelStore) -> list[str]:
    return [model.name for model in await store.models() if model.source == "folder" or "made" in model.name]


async def upload(store: ModelStore, content: bytes = CONTENT) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(content), 7):
            yield content[at : at + 7]

    await store.receive_upload(DIGEST, len(content), chunks())


async def test_details_are_those_of_the_header(managed: Managed) -> None:
    tags = strings_key("general.tags", ["a", "b"])
    add_model(managed.folder, "tagged", GgufBytes(keys=[tags]).build())
    store = store_of(managed)
    details = await store.details("m")
    assert (details.model.name, details.n_embd, details.variant) == ("m", 64, None)
    assert [(tensor.name, tensor.shape, tensor.type) for tensor in details.tensors] == [
        ("token_embd.weight", (32,), "Q8_0"),
        ("blk.0.ffn_up.weight", (32,), "Q8_0"),
    ]
    assert details.metadata["llama.embedding_length"] == 64
    tagged = await store.details("tagged")
    assert (tagged.metadata["general.tags"], tagged.n_embd) == (["a", "b"], 0)
    with pytest.raises(ModelNotFound):
        await store.details("none")


@pytest.mark.parametrize(
    ("loaded", "wanted", "trained", "n_ctx"),
    [
        (300, 512, 4096, 300),
        (None, 512, 4096, 512),
        (None, None, 4096, 4096),
        (None, None, 10 * MAX_DEFAULT_N_CTX, MAX_DEFAULT_N_CTX),
        (None, None, None, MIN_DEFAULT_N_CTX),
    ],
)
async def test_the_context_is_that_of_the_loaded_model_else_of_a_load(
    managed: Managed, loaded: int | None, wanted: int | None, trained: int | None, n_ctx: int
) -> None:
    async def load_settings(name: str) -> Any:
        return SimpleNamespace(n_ctx=wanted, n_ctx_train=trained)

    facts = None if loaded is None else SimpleNamespace(n_ctx=loaded)
    states = [
        SimpleNamespace(name="m", facts=facts),
        SimpleNamespace(name="x", facts=SimpleNamespace(n_ctx=1)),
    ]
    manager: Any = SimpleNamespace(
        snapshot=lambda: SimpleNamespace(models=states), load_settings=load_settings
    )
    store = ModelStore(manager, managed.library, Pulls(managed.library).events)
    assert (await store.details("m")).n_ctx == n_ctx


FILES = (HubFile("m-1.gguf", 60, "0" * 64), HubFile("m-2.gguf", 40, "1" * 64))
PLAN = PullPlan("org/m", HubReference("org/m"), "abc", HubModel(FILES), None, (), "it fits")


class Hub:
    """A library whose download reports a note and 30 bytes, waits for `go`, and then ends."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.failure: Exception | None = None
        self.cancelled = False

    async def plan(self, name: str, revision: str | None) -> PullPlan:
        return replace(PLAN)

    async def pull(self, plan: PullPlan, watcher: DownloadWatcher) -> ModelRecord:
        watcher.note("once more")
        watcher.received(30)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        if self.failure is not None:
            raise self.failure
        watcher.received(100)
        return ModelRecord(name="org/m", source=Source(kind="hub"), files=(), modified_ns=0, added_at=0)


async def test_steps_of_a_pull(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.api.management.pulls._PROGRESS_S", 0.001)
    hub: Any = Hub()
    store = ModelStore(NO_CONTROL, hub, Pulls(hub).events)
    steps = [step async for step in _opening(store.pull("m"), hub)]
    assert {(step.name, step.files) for step in steps} == {
        ("org/m", (PulledFile("m-2.gguf", 40, "1" * 64), PulledFile("m-1.gguf", 60, "0" * 64)))
    }
    received = [step.received for step in steps]
    assert (received[0], received[-1]) == (0, 100)
    assert received == sorted(received)
    assert [step.note for step in steps if step.note is not None] == ["once more"]
    assert [step.done for step in steps] == [False] * (len(steps) - 1) + [True]


async def _opening(steps: AsyncGenerator[Any], hub: Hub) -> AsyncGenerator[Any]:
    """The steps; the download goes on when its first bytes were seen."""
    async for step in steps:
        yield step
        if step.received == 30:
            hub.go.set()


async def test_a_pull_ends_with_its_error_or_with_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.api.management.pulls._PROGRESS_S", 0.001)
    hub: Any = Hub()
    store = ModelStore(NO_CONTROL, hub, Pulls(hub).events)
    steps = store.pull("m")
    while (await anext(steps)).received == 0:
        pass
    await steps.aclose()
    assert hub.cancelled
    hub.failure = HubUnavailable("down")
    hub.go.set()
    with pytest.raises(HubUnavailable, match="down"):
        async for step in store.pull("m"):
            assert not step.done


async def test_a_variant_is_deleted_without_its_base(managed: Managed) -> None:
    store = store_of(managed)
    await store.add_variant(variant())
    assert (await store.details("pirate")).variant == variant()
    with pytest.raises(InvalidRequest, match="delete these first"):
        await store.delete("m")
    await store.delete("pirate")
    assert await names(store) == ["m"]
    await store.delete("m")
    assert await names(store) == []
    with pytest.raises(ModelNotFound):
        await store.delete("m")


async def test_a_refused_deletion_unloads_nothing(managed: Managed) -> None:
    store = store_of(managed)
    await store.add_variant(variant())
    async with managed.manager.lease("m"):
        pass
    with pytest.raises(InvalidRequest):
        await store.delete("m")
    assert [model.state for model in managed.manager.snapshot().models] == ["ready"]


async def test_an_upload_becomes_a_model_that_goes_with_its_last_variant(managed: Managed) -> None:
    store = store_of(managed)
    assert not await store.has_upload(DIGEST)
    await upload(store)
    assert await store.has_upload(DIGEST)
    with pytest.raises(InvalidRequest, match="is a name of the model m"):
        await store.make_model(DIGEST, "m")
    base = await store.make_model(DIGEST, "made")
    for name in ("one", "two"):
        await store.add_variant(variant(name, base))
    await store.delete("one")
    assert base in await names(store)
    await store.delete("two")
    assert base not in await names(store)
    assert "m" in await names(store)


@pytest.mark.parametrize("digest", ["sha256:", "x", "sha256:../../m.gguf", "sha256:" + "A" * 64])
async def test_digests_that_are_none(managed: Managed, digest: str) -> None:
    with pytest.raises(InvalidRequest):
        await store_of(managed).has_upload(digest)
