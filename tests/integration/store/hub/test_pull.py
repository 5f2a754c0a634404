"""Names that are refused, and files that are not there (any more)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jan_serve.errors import HubNotFound, InvalidRequest, Offline
from jan_serve.store.hub.hub_http import HubAccess
from jan_serve.store.hub.pull import Puller
from jan_serve.store.resolve import ModelResolver
from tests.integration.store.conftest import REPO, Bench

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
