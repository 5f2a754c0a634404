"""The file of known nodes: nothing is lost, and nothing that is in it breaks the proxy."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from jan_serve.errors import SettingsError
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Role
from jan_serve.proxy.fleet_file import FleetFile
from jan_serve.store.files import write_atomically
from tests.support.servers.fake_nodes import FakeNode, fake_nodes, running_proxy

pytestmark = pytest.mark.anyio


async def written(path: Path) -> bytes:
    fleet = Fleet("prefix", Random(1))
    fleet.add("http://10.0.0.1:1", Role.DECODE, ["m"], 2.5, 0.0).declares = True
    fleet.add("http://10.0.0.2:2", Role.HYBRID, [], None, 0.0).in_flight = 7
    file = FleetFile(path)
    file.open()
    file.save(fleet)
    await file.close()
    return path.read_bytes()


async def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    content = await written(path)
    assert b"in_flight" not in content and b"7" not in content
    assert path.stat().st_mode & 0o077 == 0
    file = FleetFile(path)
    records, warning = file.open()
    assert warning is None
    assert [(each.url, each.role, each.models, each.speed, each.declares) for each in records] == [
        ("http://10.0.0.1:1", 3, ["m"], 2.5, True),
        ("http://10.0.0.2:2", 1, [], None, False),
    ]
    await file.close()


async def test_a_file_cut_at_any_byte_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    content = (await written(path)).rstrip()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        file = FleetFile(path)
        records, warning = file.open()
        assert records == []
        assert warning is not None
        assert path.with_name("fleet.json.damaged").read_bytes() == content[:length]
        await file.close()


@pytest.mark.parametrize(
    "content",
    [b"[]", b'{"version": 1}', b'{"version": 0, "nodes": []}', b'{"nodes": [1]}', b"\xff", b"[" * 100_000],
)
async def test_another_content_is_set_aside_with_the_reason(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fleet.json"
    path.write_bytes(content)
    file = FleetFile(path)
    _, warning = file.open()
    assert warning is not None and "is not a list of nodes" in warning and "fleet.json.damaged" in warning
    assert not path.exists()
    await file.close()


LATER = b'{"version": 2, "nodes": [{"url": "http://10.0.0.1:1", "role": 2, "models": ["n"], "weight": 9}]}'


async def test_the_file_of_a_later_version_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    path.write_bytes(LATER)
    file = FleetFile(path)
    records, warning = file.open()
    assert records == []
    kept = tmp_path / "fleet.json.v2"
    assert warning is not None and "newer version" in warning and kept.name in warning
    assert kept.read_bytes() == LATER
    await file.close()

    await written(path)  # the earlier version works: with the node of the later one, and another
    assert kept.read_bytes() == LATER


async def test_two_proxies_do_not_share_a_file(tmp_path: Path) -> None:
    first = FleetFile(tmp_path / "fleet.json")
    first.open()
    with pytest.raises(SettingsError, match="another proxy"):
        FleetFile(tmp_path / "fleet.json").open()
    await first.close()
    second = FleetFile(tmp_path / "fleet.json")
    second.open()
    await second.close()


async def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(path: Path, content: bytes, *, mode: int | None = None) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jan_serve.proxy.fleet_file.write_atomically", full)
    file = FleetFile(tmp_path / "fleet.json")
    file.open()
    file.save(Fleet("prefix", Random(1)))
    await file.close()
    assert "No space left" in caplog.text


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("can't start new thread")]
)
async def test_what_could_not_be_written_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failures, is_written = 2, asyncio.Event()
    loop = asyncio.get_running_loop()

    def write(path: Path, content: bytes, *, mode: int | None = None) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise error
        write_atomically(path, content, mode=mode)
        loop.call_soon_threadsafe(is_written.set)

    monkeypatch.setattr("jan_serve.proxy.fleet_file.write_atomically", write)
    monkeypatch.setattr("jan_serve.proxy.fleet_file.DELAY_S", 0.001)
    file = FleetFile(tmp_path / "fleet.json")
    file.open()
    file.save(Fleet("prefix", Random(1)))
    async with asyncio.timeout(60):
        await is_written.wait()
    await file.close()
    assert b"nodes" in (tmp_path / "fleet.json").read_bytes()


async def test_a_restarted_proxy_knows_its_nodes_and_those_named_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "fleet.json"
    async with fake_nodes(FakeNode("kept"), FakeNode("named")) as (kept, named):
        async with running_proxy(kept, fleet_file=path) as front:
            assert (await front.chat()).json()["node"] == "kept"
        async with running_proxy(fleet_file=path, nodes=(named.url,)) as front:
            while len([node for node in front.proxy.fleet if node.accepts(0.0)]) < 2:
                await front.client.get("/health")
            seen = {(await front.chat(f"{number}" * 600)).json()["node"] for number in range(20)}
            assert seen == {"kept", "named"}
