"""The management routes over fake engines: real worker processes, a real folder, a hub on loopback."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest

from jan_serve.store.hub.retries import RetryPolicy
from tests.integration.store.conftest import FILE, REPO
from tests.integration.store.conftest import hub as hub
from tests.support.engine.engines import Gate
from tests.support.processes import alive, until
from tests.support.servers.fake_hub import FakeHub, Fault
from tests.support.servers.fronts import raw_client, raw_post
from tests.support.servers.managed import Managed, add_model, listening, managed_app
from tests.unit.store.gguf_builder import GgufBytes, uint_key

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


async def entry(managed: Managed, name: str) -> dict[str, Any]:
    """A model's entry in GET /models."""
    answer = await managed.client.get("/models")
    assert answer.status_code == 200
    return next(model for model in answer.json()["data"] if model["id"] == name)


async def post(managed: Managed, path: str, **body: Any) -> httpx.Response:
    """POST a JSON body."""
    return await managed.client.post(path, json=body)


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream that succeeded."""
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


async def test_a_model_is_listed_loaded_and_unloaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "jan_serve")
    add_model(tmp_path, "org/a")
    async with managed_app(tmp_path) as managed:
        before = await entry(managed, "org/a")
        assert (before["status"], before["object"], before["source"]) == (
            {"value": "unloaded"},
            "model",
            "folder",
        )
        assert (before["memory"], before["can_remove"]) == (None, True)
        assert (await post(managed, "/models/load", model="ORG/A.gguf")).json() == {
            "success": True,
            "model": "org/a",
        }
        assert "on CPU, 1 thread, context 4096" in caplog.text
        loaded = await entry(managed, "org/a")
        assert loaded["status"] == {"value": "loaded"}
        assert loaded["context_length"] == loaded["max_model_len"] == 4096
        assert loaded["memory"]["weights"] == 68
        assert 599 < loaded["ttl_s"] <= 600
        pid = managed.manager.snapshot().models[0].pid
        assert (await post(managed, "/models/unload", model="org/a")).json() == {
            "success": True,
            "model": "org/a",
        }
        assert (await entry(managed, "org/a"))["status"] == {"value": "unloaded"}
        assert pid is not None and not alive(pid)
        assert (await post(managed, "/models/unload", model="org/a")).status_code == 200


async def test_the_progress_of_a_load_is_seen_in_the_list_and_in_a_stream(tmp_path: Path) -> None:
    gate = Gate(add_model(tmp_path, "slow-load").with_suffix(".gguf.gate"))
    async with managed_app(tmp_path) as managed, listening(managed) as port, raw_client(port) as client:
        await client.send(raw_post("/models/load", b'{"model": "slow-load", "stream": true}'))
        await client.until(b'"event":"model_status","data":{"status":"loading"')
        seen = (await entry(managed, "slow-load"))["status"]
        assert seen["value"] == "loading"
        assert (seen["progress"]["current"], seen["progress"]["value"]) == ("text_model", 0.0)
        await asyncio.to_thread(gate.open)
        await client.until(b'"event":"model_status","data":{"status":"loaded"}')
        await client.until(b"data: [DONE]")


async def test_a_load_is_broken_off_by_unload(tmp_path: Path) -> None:
    Gate(add_model(tmp_path, "slow-load").with_suffix(".gguf.gate"))
    async with managed_app(tmp_path) as managed:
        load = asyncio.create_task(post(managed, "/models/load", model="slow-load"))
        await until(lambda: any(model.pid is not None for model in managed.manager.snapshot().models))
        assert (await post(managed, "/models/unload", model="slow-load")).status_code == 200
        answer = await load
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")


async def test_a_client_that_leaves_stops_its_load(tmp_path: Path) -> None:
    Gate(add_model(tmp_path, "slow-load").with_suffix(".gguf.gate"))
    async with managed_app(tmp_path) as managed, listening(managed) as port:
        for stream in (False, True):
            async with raw_client(port) as client:
                body = json.dumps({"model": "slow-load", "stream": stream}).encode()
                await client.send(raw_post("/models/load", body))
                await until(lambda: any(model.pid is not None for model in managed.manager.snapshot().models))
                client.close()
                await until(lambda: managed.manager.snapshot().models[0].state == "unloaded")


async def test_a_load_without_waiting_goes_on_by_itself(tmp_path: Path) -> None:
    gate = Gate(add_model(tmp_path, "slow-load").with_suffix(".gguf.gate"))
    async with managed_app(tmp_path) as managed:
        assert (await post(managed, "/models/load", model="slow-load", wait=False)).status_code == 200
        await asyncio.to_thread(gate.open)
        await until(lambda: any(model.state == "ready" for model in managed.manager.snapshot().models))


async def test_a_failed_load_reports_the_reason_now_and_in_the_list(tmp_path: Path) -> None:
    add_model(tmp_path, "fail-load")
    async with managed_app(tmp_path) as managed:
        answer = await post(managed, "/models/load", model="fail-load")
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_model")
        await until(lambda: managed.manager.snapshot().models[0].state == "unloaded")
        status = (await entry(managed, "fail-load"))["status"]
        assert status == {"value": "failed", "failed": True, "reason": "not a GGUF file"}


@pytest.mark.parametrize("path", ["/models/load", "/models/unload"])
async def test_unknown_models_are_404_with_names_that_look_like_them(tmp_path: Path, path: str) -> None:
    add_model(tmp_path, "llama-small")
    async with managed_app(tmp_path) as managed:
        answer = await post(managed, path, model="lama-small")
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert error["code"] == "model_not_found" and "llama-small" in error["message"]


async def test_a_model_in_use_is_not_deleted_and_one_that_is_free_is(tmp_path: Path) -> None:
    file = add_model(tmp_path, "org/a")
    async with managed_app(tmp_path) as managed:
        async with managed.manager.lease("org/a"):
            answer = await managed.client.delete("/models/org/a")
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "model_in_use")
            assert file.exists()
        size = file.stat().st_size
        answer = await managed.client.delete("/models/org/a")
        assert answer.json() == {"success": True, "model": "org/a", "freed_bytes": size}
        assert not file.exists()
        assert managed.manager.snapshot().models[0].pid is None
        assert (await managed.client.delete("/models/org/a")).status_code == 404


async def test_a_refused_deletion_leaves_the_model_loaded(tmp_path: Path) -> None:
    elsewhere = add_model(tmp_path, "mine")
    folder = tmp_path / "models"
    folder.mkdir()
    async with managed_app(folder, model=str(elsewhere)) as managed:
        await post(managed, "/models/load", model="mine")
        pid = managed.manager.snapshot().models[0].pid
        answer = await managed.client.delete("/models/mine")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
        assert pid is not None and managed.manager.snapshot().models[0].pid == pid
        assert elsewhere.exists()


async def test_deleting_never_means_a_model_whose_name_only_begins_so(tmp_path: Path) -> None:
    add_model(tmp_path, "qwen3-0.6b")
    other = add_model(tmp_path, "qwen3-0.6b-instruct")
    async with managed_app(tmp_path) as managed:
        assert (await managed.client.delete("/models/qwen3")).status_code == 404
        # Both at once, repeatedly: the later one finds nothing, or the first one at work.
        answers = await asyncio.gather(*(managed.client.delete("/models/qwen3-0.6b") for _ in range(2)))
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses[0] == 200 and statuses[1] in (404, 409)
        for answer in (
            await managed.client.delete("/models/qwen3-0.6b"),
            await managed.client.delete("/models", params={"model": "qwen3-0.6b"}),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
            assert "qwen3-0.6b-instruct" in answer.json()["error"]["message"]
        assert other.exists()


async def test_a_name_that_two_models_share_deletes_neither(tmp_path: Path) -> None:
    files = [add_model(tmp_path, "same"), add_model(tmp_path, "org/same")]
    async with managed_app(tmp_path) as managed:
        answer = await managed.client.delete("/models/same")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
        assert "org/same.gguf, same.gguf" in answer.json()["error"]["message"]
        assert all(file.exists() for file in files)
        assert (await managed.client.delete("/models/same.gguf")).json()["model"] == "same"
        assert (await managed.client.delete("/models/same.gguf")).status_code == 404
        assert files[1].exists()


async def test_a_pull_tells_its_progress_and_the_model_is_there(tmp_path: Path, hub: FakeHub) -> None:
    async with managed_app(tmp_path, hub=hub.url) as managed:
        received = events(await post(managed, "/models/pull", model=f"{REPO}:Q8_0"))
        kinds = [event["event"] for event in received]
        assert kinds[0] == "download_started" and kinds[-1] == "download_finished"
        assert {event["model"] for event in received} == {f"{REPO}:Q8_0"}
        total = len(hub.repos[REPO].files[FILE])
        assert received[0]["data"]["total"] == total
        counts = [
            event["data"][f"{REPO}/{FILE}"] for event in received if event["event"] == "download_progress"
        ]
        assert counts[-1] == {"done": total, "total": total}
        name = received[-1]["data"]["model"]
        assert (await entry(managed, name))["source"] == "hub"
        again = await post(managed, "/models/pull", model=f"{REPO}:Q8_0", stream=False)
        assert again.json() == {"success": True, "model": name, "aliases": [], "size_bytes": total}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"model": "org/None"}, 404, "hub_not_found"),
        ({"model": "nothing-like-it"}, 404, "hub_not_found"),
        ({"model": "../../etc/passwd"}, 400, "invalid_request"),
        ({"model": f"{REPO}:Q8_0", "revision": "../x"}, 400, "invalid_request"),
        ({"model": 5}, 422, "validation_error"),
        ({}, 422, "validation_error"),
    ],
)
async def test_what_cannot_be_pulled_has_a_status_of_its_own(
    tmp_path: Path, hub: FakeHub, body: dict[str, Any], status: int, code: str
) -> None:
    async with managed_app(tmp_path, hub=hub.url) as managed:
        answer = await managed.client.post("/models/pull", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


async def test_damaged_files_are_listed_with_the_reason_and_refused(tmp_path: Path) -> None:
    whole = GgufBytes().build()
    shuffled = random.Random(56)
    for number in range(40):
        damaged = bytearray(whole[: shuffled.randrange(8, len(whole))] if number % 4 == 0 else whole)
        for _ in range(0 if number % 4 == 0 else 3):
            damaged[shuffled.randrange(len(damaged) // 2)] = shuffled.randrange(256)
        add_model(tmp_path, f"m{number:02}", bytes(damaged))
    add_model(tmp_path, "whole")
    async with managed_app(tmp_path, max_models=2) as managed:
        refused = 0
        for number in range(40):
            answer = await post(managed, "/models/load", model=f"m{number:02}")
            if answer.status_code != 200:
                assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_model")
                refused += 1
        assert refused > 20
        assert (await post(managed, "/models/load", model="whole")).status_code == 200
        listed = (await managed.client.get("/models")).json()["data"]
        assert len([model for model in listed if model["status"].get("failed")]) == refused


async def test_openais_list_describes_each_model_and_loads_none(tmp_path: Path) -> None:
    header = GgufBytes(keys=[uint_key("llama.context_length", 2048)]).build()
    add_model(tmp_path, "org/repo/a-Q4_K_M", header)
    add_model(tmp_path, "broken", b"GGUF")
    async with managed_app(tmp_path) as managed:
        await until_read(managed)
        listed = (await managed.client.get("/v1/models")).json()
        cards = {card["id"]: card for card in listed["data"]}
        card = cards["org/repo/a-Q4_K_M"]
        assert (card["object"], card["owned_by"]) == ("model", "jan-serve")
        assert card["context_length"] == card["max_model_len"] == 2048
        assert (card["meta"]["quantization"], card["meta"]["n_params"]) == ("Q4_K_M", 64)
        assert cards["broken"]["context_length"] is None
        assert managed.manager.snapshot().models == ()
        assert (await managed.client.get("/v1/models/org/repo/a-Q4_K_M")).json() == card
        await post(managed, "/models/load", model="org/repo/a-Q4_K_M")
        loaded = (await managed.client.get("/v1/models/org/repo/a-Q4_K_M")).json()
        assert loaded["context_length"] == 4096
        assert (await managed.client.get("/v1/models/none")).status_code == 404


async def until_read(managed: Managed) -> None:
    """Until every header was read."""
    while any(model.facts is None and model.problem is None for model in await managed.library.models()):
        await asyncio.sleep(0.01)


async def test_a_download_in_the_background_is_seen_and_can_be_stopped(tmp_path: Path, hub: FakeHub) -> None:
    hub.file_faults.append(Fault(stall_at=1 << 20))
    async with managed_app(tmp_path, hub=hub.url, retry_policy=RetryPolicy(read_s=60)) as managed:
        name = (await post(managed, "/models", model=f"{REPO}:Q8_0")).json()["model"]
        await asyncio.to_thread(hub.stalled.wait, 60)
        seen = (await entry(managed, name))["status"]
        assert seen["value"] == "downloading"
        assert seen["progress"][f"{REPO}/{FILE}"]["total"] == len(hub.repos[REPO].files[FILE])
        assert (await post(managed, "/models/unload", model=f"{REPO}:Q8_0")).status_code == 200
        assert name not in {model["id"] for model in (await managed.client.get("/models")).json()["data"]}
        await post(managed, "/models", model=f"{REPO}:Q8_0")
        await until(lambda: (tmp_path / REPO / FILE).exists())


async def test_events_of_all_models_as_long_as_somebody_listens(tmp_path: Path, hub: FakeHub) -> None:
    add_model(tmp_path, "a")
    async with (
        managed_app(tmp_path, hub=hub.url) as managed,
        listening(managed) as port,
        raw_client(port) as client,
    ):
        await client.send(b"GET /models/sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await client.until(b'"event":"models_reload"')
        await post(managed, "/models/load", model="a")
        await client.until(b'"model":"a","event":"model_status","data":{"status":"loaded"}')
        await post(managed, "/models/unload", model="a")
        await client.until(b'"model":"a","event":"model_status","data":{"status":"unloaded"}')
        await post(managed, "/models/pull", model=f"{REPO}:Q8_0", stream=False)
        await client.until(b'"event":"models_reload"')
        await managed.client.delete("/models", params={"model": "a"})
        await client.until(b'"model":"a","event":"model_remove"')
        client.close()
