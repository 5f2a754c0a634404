"""/v1/messages/batches over fake models."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from jan_serve.journal.batches import Batch as StoredBatch
from jan_serve.journal.batches import BatchTable
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts, saying
from tests.support.servers.journaled import Gate, journaled_server

pytestmark = pytest.mark.anyio

PATH: Final = "/v1/messages/batches"
MESSAGE: Final[dict[str, Any]] = {
    "model": "fake", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi."}],
}  # fmt: skip


def models(*pieces: str, gate: Gate | None = None) -> FakeModels:
    facts = fake_facts(chat_templates={"default": "{% for m in messages %}{{ m.content }}{% endfor %}"})
    return FakeModels(
        FakeClient(script=gate.saying(*pieces, after=1) if gate else saying(*pieces), facts=facts)
    )


async def begun(client: httpx.AsyncClient, *params: Any) -> dict[str, Any]:
    requests = [{"custom_id": f"id-{number}", "params": each} for number, each in enumerate(params)]
    return (await client.post(PATH, json={"requests": requests})).raise_for_status().json()


async def ended(client: httpx.AsyncClient, batch_id: str) -> dict[str, Any]:
    async with asyncio.timeout(60):
        while True:
            batch = (await client.get(f"{PATH}/{batch_id}")).json()
            if batch["processing_status"] == "ended":
                return batch
            await asyncio.sleep(0.01)


async def test_each_message_has_a_result_in_order(tmp_path: Path) -> None:
    async with journaled_server(tmp_path, models("Hello.")) as client:
        batch = await begun(client, MESSAGE, {**MESSAGE, "max_tokens": "x"}, MESSAGE | {"messages": []})
        assert (batch["type"], batch["processing_status"], batch["results_url"]) == (
            "message_batch", "in_progress", None,
        )  # fmt: skip
        assert batch["request_counts"]["processing"] == 3
        batch = await ended(client, batch["id"])
        assert batch["request_counts"] == {
            "processing": 0, "succeeded": 1, "errored": 2, "canceled": 0, "expired": 0,
        }  # fmt: skip
        results: list[Any] = [
            json.loads(line) for line in (await client.get(batch["results_url"])).text.splitlines()
        ]
        assert [each["custom_id"] for each in results] == ["id-0", "id-1", "id-2"]
        assert [each["result"]["type"] for each in results] == ["succeeded", "errored", "errored"]
        assert results[0]["result"]["message"]["content"] == [{"type": "text", "text": "Hello."}]
        refused: dict[str, Any] = {**MESSAGE, "messages": []}
        online = (await client.post("/v1/messages", json=refused)).json()
        assert results[2]["result"]["error"]["error"] == online["error"]


async def test_cancelled_messages_are_said_to_be(tmp_path: Path) -> None:
    gate = Gate()
    async with journaled_server(tmp_path, models("Hel", "lo.", gate=gate)) as client:
        batch_id = (await begun(client, MESSAGE, MESSAGE))["id"]
        await gate.reached.wait()
        assert (await client.delete(f"{PATH}/{batch_id}")).status_code == 400
        assert (await client.get(f"{PATH}/{batch_id}/results")).status_code == 400
        assert (await client.post(f"{PATH}/{batch_id}/cancel")).json()["processing_status"] == "canceling"
        batch = await ended(client, batch_id)
        assert batch["request_counts"]["canceled"] == 2
        results = (await client.get(f"{PATH}/{batch_id}/results")).text.splitlines()
        assert [json.loads(line)["result"] for line in results] == [{"type": "canceled"}] * 2
        assert (await client.delete(f"{PATH}/{batch_id}")).json()["type"] == "message_batch_deleted"
        assert (await client.get(f"{PATH}/{batch_id}")).status_code == 404


SCHEMA = "The request does not fit the schema of this route: "


async def test_batches_are_listed_in_pages_for_their_owner(tmp_path: Path) -> None:
    async with journaled_server(tmp_path, models("Hello."), key="one", api_keys=("one", "two")) as client:
        ids = [(await begun(client, MESSAGE))["id"] for _ in range(3)]
        first = (await client.get(PATH, params={"limit": 2})).json()
        assert ([each["id"] for each in first["data"]], first["has_more"]) == ([ids[2], ids[1]], True)
        rest = (await client.get(PATH, params={"after_id": first["last_id"]})).json()
        assert [each["id"] for each in rest["data"]] == ids[:1]
        other = {"authorization": "Bearer two"}
        assert (await client.get(PATH, headers=other)).json()["data"] == []
        for method, path in (("GET", ""), ("GET", "/results"), ("POST", "/cancel"), ("DELETE", "")):
            refused = await client.request(method, f"{PATH}/{ids[0]}{path}", headers=other)
            assert (refused.status_code, refused.json()["error"]["type"]) == (404, "not_found_error")
        assert (await client.get(f"/v1/batches/{ids[0]}")).status_code == 404


@pytest.mark.parametrize(
    ("requests", "place"),
    [
        ([], "requests: "),
        ([{"custom_id": "a b", "params": MESSAGE}], "requests[0].custom_id: "),
        ([{"custom_id": "x" * 65, "params": MESSAGE}], "requests[0].custom_id: "),
        ([{"custom_id": "", "params": MESSAGE}], "requests[0].custom_id: "),
        (
            [{"custom_id": "a", "params": MESSAGE}, {"custom_id": "a", "params": MESSAGE}],
            "requests[1].custom_id: ",
        ),
        ([{"custom_id": "a", "params": MESSAGE | {"stream": True}}], "requests[0].params.stream: "),
        ([{"custom_id": "a", "params": 3}], "requests[0].params: "),
        ([{"params": MESSAGE}], "requests[0].custom_id: "),
    ],
)
async def test_a_list_that_is_no_batch_is_refused(tmp_path: Path, requests: Any, place: str) -> None:
    async with journaled_server(tmp_path) as client:
        refused = await client.post(PATH, json={"requests": requests})
        assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
        assert refused.json()["error"]["message"].removeprefix(SCHEMA).startswith(place)
        assert refused.json()["error"]["message"].count("requests[") <= 1


async def test_a_batch_that_ends_while_it_is_cancelled_is_said_to_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = BatchTable.change

    async def late(table: BatchTable, batch: StoredBatch) -> bool:
        await ended(client, batch.id)
        return await change(table, batch)

    async with journaled_server(tmp_path, models("Hello.")) as client:
        batch_id = (await begun(client, MESSAGE))["id"]
        monkeypatch.setattr(BatchTable, "change", late)
        cancelled = (await client.post(f"{PATH}/{batch_id}/cancel")).json()
        assert (cancelled["processing_status"], cancelled["cancel_initiated_at"]) == ("ended", None)
