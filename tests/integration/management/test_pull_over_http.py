"""`POST /models/pull`: clients that leave, hubs that drop the connection, names and redirects that lead elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.store.hub.retries import RetryPolicy
from tests.integration.store.conftest import REPO
from tests.integration.store.conftest import hub as hub
from tests.support.processes import until
from tests.support.servers.fake_hub import FakeHub, FakeRepo, Fault
from tests.support.servers.fronts import raw_client, raw_post
from tests.support.servers.managed import Managed, add_model, listening, managed_app

pytestmark = [pytest.mark.anyio, pytest.mark.integration]

PATIENT = RetryPolicy(connect_s=2, read_s=60, answer_s=60, tries=3, backoff_s=0.01, max_wait_s=0.2)


@pytest.fixture
async def managed(tmp_path: Path, hub: FakeHub) -> AsyncGenerator[Managed]:
    """The application, which pulls from the hub."""
    async with managed_app(tmp_path, hub=hub.url, retry_policy=PATIENT) as managed:
        yield managed


def pull_request(**body: Any) -> bytes:
    """A pull's request as bytes."""
    return raw_post("/models/pull", json.dumps({"model": f"{REPO}:Q8_0", **body}).encode())


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_its_pull_and_the_next_resumes(
    managed: Managed, hub: FakeHub, stream: bool
) -> None:
    hub.file_faults.append(Fault(stall_at=1 << 20))
    async with listening(managed) as port, raw_client(port) as client:
        await client.send(pull_request(stream=stream))
        await asyncio.to_thread(hub.stalled.wait, 60)
        client.close()
        incoming = managed.folder / ".jan-serve" / "incoming"
        await until(lambda: any(incoming.glob("*.part")))
        answer = await managed.client.post("/models/pull", json={"model": f"{REPO}:Q8_0", "stream": False})
        assert answer.status_code == 200
        assert [asked.headers.get("range") for asked in hub.asked("/resolve/")][-1] == f"bytes={1 << 20}-"


@pytest.mark.parametrize(
    ("path", "end"),
    [
        ("/models/pull", b'data: {"error":{"message":"The server is shutting down."'),
        ("/api/pull", b'{"error":"The server is shutting down."}\n'),
    ],
)
async def test_the_end_of_the_server_ends_a_stream_of_progress_with_an_error(
    managed: Managed, hub: FakeHub, path: str, end: bytes
) -> None:
    hub.file_faults.append(Fault(stall_at=1 << 20))
    async with contextlib.AsyncExitStack() as server:
        port = await server.enter_async_context(listening(managed))
        async with raw_client(port) as client:
            await client.send(raw_post(path, json.dumps({"model": f"{REPO}:Q8_0"}).encode()))
            await asyncio.to_thread(hub.stalled.wait, 60)
            await client.until(b"\r\n\r\n")
            ending = asyncio.create_task(server.aclose())
            assert end in await client.rest()
        await ending


async def test_another_body_is_an_error_event_and_no_model(managed: Managed, hub: FakeHub) -> None:
    hub.file_faults.append(Fault(flip_at=2 << 20))
    answer = await managed.client.post("/models/pull", json={"model": f"{REPO}:Q8_0"})
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    error = json.loads(lines[-1].removeprefix("data: "))["error"]
    assert error["code"] == "digest_mismatch"
    assert "[DONE]" not in answer.text
    whole = await managed.client.post("/models/pull", json={"model": f"{REPO}:Q8_0", "stream": False})
    assert whole.status_code == 200
    hub.repos["org/Other"] = FakeRepo({"Other-Q8_0.gguf": b"<html>log in</html>"})
    refused = await managed.client.post("/models/pull", json={"model": "org/Other", "stream": False})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "invalid_model")
    listed = [model["id"] for model in (await managed.client.get("/models")).json()["data"]]
    assert not any("Other" in name for name in listed)


async def test_many_pulls_at_once_are_one_transfer(managed: Managed, hub: FakeHub) -> None:
    asks = (managed.client.post("/models/pull", json={"model": f"{REPO}:Q8_0"}) for _ in range(8))
    answers = await asyncio.gather(*asks)
    assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers)
    assert len(hub.asked("/resolve/")) == 1


@pytest.mark.parametrize(
    "name",
    [
        "../../x", "..%2f..%2fx", "..\\x", "/etc/passwd", "C:\\x", "a/../../b", "org/repo/../../../x.gguf", "a\0b/c",
        "x" * 300, "org/CON", "org/repo.", "http://127.0.0.1:1/org/repo", "https://example.org/org/repo",
        "file:///etc/passwd", "http://169.254.169.254/latest/meta-data",
    ],
)  # fmt: skip
async def test_names_that_lead_elsewhere_are_refused_before_any_request(
    managed: Managed, hub: FakeHub, name: str
) -> None:
    for method, path, body in (
        ("POST", "/models/pull", {"model": name}),
        ("POST", "/models/load", {"model": name}),
        ("POST", "/models/unload", {"model": name}),
    ):
        answer = await managed.client.request(method, path, json=body)
        assert answer.status_code in (400, 404), (path, answer.text)
    assert hub.requests == []


async def test_other_fields_of_a_pull_reach_no_other_host(managed: Managed, hub: FakeHub) -> None:
    with_url = {"url": "http://127.0.0.1:1/", "endpoint": "http://127.0.0.1:1/", "insecure": True}
    body = {"model": f"{REPO}:Q8_0", "stream": False, **with_url}
    assert (await managed.client.post("/models/pull", json=body)).status_code == 200
    assert len(hub.asked("/resolve/")) == 1


async def test_deleting_a_link_leaves_what_it_leads_to(tmp_path: Path) -> None:
    outside = add_model(tmp_path / "elsewhere", "original")
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "linked.gguf").symlink_to(outside)
    (folder / "hosts.gguf").symlink_to("/etc/hosts")
    async with managed_app(folder) as managed:
        for name in ("linked", "hosts"):
            assert (await managed.client.delete(f"/models/{name}")).json()["freed_bytes"] == 0
        assert outside.exists() and Path("/etc/hosts").exists()
        for name in ("../elsewhere/original", "..%2Felsewhere%2Foriginal", "jan-tiny"):
            assert (await managed.client.delete(f"/models/{name}")).status_code in (400, 404)
        assert outside.exists()


async def test_a_model_is_not_deleted_during_its_stream(tmp_path: Path) -> None:
    add_model(tmp_path, "chat")
    async with managed_app(tmp_path) as managed, listening(managed) as port, raw_client(port) as client:
        body = {"model": "chat", "prompt": "!stream 1000000 5ms", "stream": True, "max_tokens": 0}
        await client.send(raw_post("/v1/completions", json.dumps(body).encode()))
        await client.until(b"data: ")
        answer = await managed.client.delete("/models/chat")
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "model_in_use")
        client.close()
        await until(lambda: managed.manager.snapshot().models[0].leases == 0)
        assert (await managed.client.delete("/models/chat")).status_code == 200


async def test_only_gguf_files_are_pulled(managed: Managed, hub: FakeHub) -> None:
    hub.repos["org/Pickled"] = FakeRepo({"pytorch_model.bin": b"\x80\x04.", "modeling_x.py": b"import os"})
    answer = await managed.client.post("/models/pull", json={"model": "org/Pickled"})
    assert answer.status_code == 404
    assert hub.asked("/resolve/") == []
