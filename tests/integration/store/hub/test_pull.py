"""Names that are refused, files that are not there (any more), and what changes during a pull."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from pathlib import Path

import pytest

from jan_serve.errors import HubNotFound, InvalidRequest, Offline
from jan_serve.store.hub.hub_http import HubAccess
from jan_serve.store.hub.pull import Puller
from jan_serve.store.hub.references import Catalogue, CatalogueEntry
from jan_serve.store.hub.retries import RetryPolicy
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source
from jan_serve.store.resolve import ModelResolver
from tests.integration.store.conftest import FILE, REPO, Bench, model_bytes
from tests.support.processes import until
from tests.support.servers.fake_hub import Fault

pytestmark = pytest.mark.anyio

HOSTILE = (
    "../../x", "..%2fx", "..\\x", "/etc/passwd", "C:\\x", "a/../../b", "a/b/../c.gguf", "a/b\0c", "a/" + "b" * 300,
    "org/CON", "org/name.", "org/.name", "org/na me", "org/x:../y", "org/x:", "-org/x", "org/..", "./x", "org//x",
    "org/x/a.gguf:b", "https://127.0.0.1:1/org/x", "http://huggingface.co@evil.example/org/x", "file:///etc/passwd",
    "", "\ud800/x", "org/x/resolve/../../y.gguf",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
async def test_hostile_names_are_refused_before_anything_is_asked(bench: Bench, name: str) -> None:
    with pytest.raises((InvalidRequest, HubNotFound)) as caught:
        await bench.pull(name)
    caught.value.message.encode("utf-8")
    assert caught.value.message.isprintable()
    assert bench.hub.requests == []
    assert not bench.models.exists()


@pytest.mark.parametrize("revision", ["../main", "a b", "-x", "a\0", "x" * 300, "refs/../x", ""])
async def test_hostile_revisions(bench: Bench, revision: str) -> None:
    with pytest.raises(InvalidRequest, match="revision"):
        await bench.puller().plan(REPO, revision=revision)
    assert bench.hub.requests == []


async def test_a_file_that_vanished_since_the_list(bench: Bench) -> None:
    plan = await bench.puller().plan(REPO)
    bench.hub.repos[REPO].files.clear()
    with pytest.raises(HubNotFound):
        await bench.puller().run(plan, bench.seen)
    assert bench.incoming() == []


async def test_without_a_network_models_are_listed_and_pull_is_offline(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.pull()
    import socket

    def no_network(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    assert [entry.name for entry in ModelResolver(bench.models).entries()] == [f"{REPO}/Tiny-Q8_0"]
    with pytest.raises(Offline, match="Temporary failure in name resolution"):
        await Puller(bench.models, HubAccess("https://hub.example")).plan("org/x")


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
async def test_a_link_in_the_place_of_the_model_is_replaced_not_written_through(
    bench: Bench, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    bench.file().parent.mkdir(parents=True)
    bench.file().symlink_to(outside)
    await bench.pull()
    assert outside.read_bytes() == b"precious"
    assert not bench.file().is_symlink()


async def test_a_pull_of_another_revision_does_not_join_the_running_transfer(bench: Bench) -> None:
    puller = bench.puller(retry_policy=RetryPolicy(read_s=60))
    bench.hub.file_faults.append(Fault(stall_at=1 << 20))
    older = asyncio.ensure_future(bench.pull(puller=puller))
    await asyncio.to_thread(bench.hub.stalled.wait, 10)
    repo = bench.hub.repos[REPO]
    content, repo.files[FILE] = repo.files[FILE], model_bytes(fill=9)
    commit, repo.commit = repo.commit, "f" * 40
    # After the stall, the older revision has its bytes still.
    repo.revisions = ("main", commit)
    bench.hub.file_faults.append(Fault(body=content))
    newer = asyncio.ensure_future(bench.pull(puller=puller))
    await until(lambda: any("another download" in note for note in bench.seen.notes))
    bench.hub.released.set()
    records = await asyncio.gather(older, newer)
    assert [record.source.revision for record in records] == [commit, "f" * 40]
    digests = [hashlib.sha256(each).hexdigest() for each in (content, bench.content())]
    assert [record.files[0].sha256 for record in records] == digests
    assert bench.file().read_bytes() == bench.content()
    assert ModelIndex(bench.models).records()[f"{REPO}/Tiny-Q8_0"] == records[1]


def entry_of(name: str) -> CatalogueEntry:
    """The catalogue's name for the file of `REPO`."""
    return CatalogueEntry(
        name, name, REPO, FILE, "Q8_0", ("chat",), 1.0, 0.1, 4096, 1.0, "2025-01", "MIT", ""
    )


def record_of(name: str, *aliases: str) -> ModelRecord:
    return ModelRecord(
        name=name,
        source=Source(kind="hub", name="org/Other"),
        files=(FileRecord(path=f"{name}.gguf", size_bytes=4),),
        modified_ns=1,
        added_at=time.time(),
        aliases=aliases,
    )


async def test_a_pull_keeps_what_others_record_meanwhile(bench: Bench) -> None:
    index = ModelIndex(bench.models)
    for name in ("removed", "renamed"):
        index.put(record_of(name, "tiny", "old"))
    bench.hub.file_faults.append(Fault(stall_at=1 << 20))
    access, policy = HubAccess(bench.hub.url, None), RetryPolicy(read_s=60)
    puller = Puller(bench.models, access, catalogue=Catalogue((entry_of("tiny"),)), retry_policy=policy)
    pull = asyncio.ensure_future(bench.pull("tiny", puller=puller))
    await asyncio.to_thread(bench.hub.stalled.wait, 10)
    index.remove("removed")
    index.put(record_of("renamed", "tiny", "new"))
    index.put(record_of(f"{REPO}/Tiny-Q8_0", "mine"))
    bench.hub.released.set()
    await pull
    aliases = {name: record.aliases for name, record in index.records().items()}
    assert aliases == {"renamed": ("new",), f"{REPO}/Tiny-Q8_0": ("tiny", "mine")}
