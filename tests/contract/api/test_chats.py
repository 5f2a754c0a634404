"""`/extras/chats` as the page and the terminal call it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from jan_serve.http.guards.auth import CALLER
from jan_serve.journal.schema import CHATS_FILE
from tests.contract.openai.test_background import BODY, ended, models
from tests.support.engine.fake_client import saying
from tests.support.servers.fronts import http_client, refused
from tests.support.servers.journaled import journaled_server

pytestmark = pytest.mark.anyio

CHAT: dict[str, Any] = {
    "title": "Weather",
    "settings": {"system": "Be brief.", "temperature": None, "sampling": {"top_k": 5}},
    "messages": [
        {"id": "q", "role": "user", "text": "Cold?"},
        {"id": "a2", "role": "assistant", "text": "Yes.", "version": 1, "later": {"x": None},
         "versions": [[{"id": "a1", "role": "assistant", "text": "No."}]]},
    ],
}  # fmt: skip
KEYS = ("k-one", "k-two")


@pytest.fixture
async def client() -> AsyncGenerator[httpx.AsyncClient]:
    async with http_client(fresh=True) as client:
        yield client


async def put(client: httpx.AsyncClient, name: str, version: int = 0, **changes: Any) -> dict[str, Any]:
    response = await client.put(f"/extras/chats/{name}", json={**CHAT, "version": version, **changes})
    assert response.status_code == 200, response.text
    return response.json()


async def listed(client: httpx.AsyncClient, **query: Any) -> list[str]:
    return [chat["id"] for chat in (await client.get("/extras/chats", params=query)).json()["data"]]


async def test_a_chat_comes_back_as_it_was_written(client: httpx.AsyncClient) -> None:
    head = await put(client, "one")
    assert (head["version"], head["messages"], head["title"]) == (1, 2, "Weather")
    chat = (await client.get("/extras/chats/one")).json()
    assert chat["messages"] == CHAT["messages"]
    assert {name: chat["settings"][name] for name in CHAT["settings"]} == CHAT["settings"]
    assert await listed(client) == await listed(client, q="cold no") == ["one"]
    assert await listed(client, q="warm") == []


async def test_two_pages_that_write_one_chat_lose_nothing(client: httpx.AsyncClient) -> None:
    await put(client, "one")
    await put(client, "one", 1, messages=CHAT["messages"][:1])
    late = await client.put("/extras/chats/one", json={**CHAT, "version": 1})
    refused(late, 409, "chat_conflict")
    assert "version is 2" in late.json()["error"]["message"]
    assert len((await client.get("/extras/chats/one")).json()["messages"]) == 1
    await client.delete("/extras/chats/one")
    refused(await client.put("/extras/chats/one", json={**CHAT, "version": 2}), 409, "chat_deleted")
    assert (await client.post("/extras/chats/one/restore")).json()["version"] == 2


async def test_renaming_moving_and_pinning_is_no_new_version(client: httpx.AsyncClient) -> None:
    await put(client, "one")
    changed = {"title": "New", "folder": "work", "pinned": True}
    head = (await client.patch("/extras/chats/one", json=changed)).json()
    assert head | changed == head and head["version"] == 1
    await put(client, "one", 1, title="Old")
    assert (await client.get("/extras/chats/one")).json()["title"] == "New"
    assert (await client.get("/extras/chats/folders")).json()["data"] == [{"name": "work", "chats": 1}]
    renamed = await client.post("/extras/chats/folders", json={"folder": "work", "name": "home"})
    assert renamed.json() == {"name": "home", "chats": 1}
    assert await listed(client, folder="home", pinned=True) == ["one"]


@pytest.mark.parametrize("path", ["/extras/chats", "/extras/chats/export"])
@pytest.mark.parametrize("before", [-1, 2**63, 10**40])
async def test_a_place_behind_which_no_list_goes_on_is_refused(
    client: httpx.AsyncClient, path: str, before: int
) -> None:
    response = await client.get(path, params={"before": before})
    assert response.status_code == 422
    assert "before" in response.json()["error"]["param"]


async def test_an_export_can_be_imported_elsewhere_and_twice(client: httpx.AsyncClient) -> None:
    for number in range(103):
        await put(client, f"c{number}", folder="work")
    chats, before = list[Any](), None
    while True:
        query = {} if before is None else {"before": before}
        page = (await client.get("/extras/chats/export", params=query)).json()
        chats += page["chats"]
        before = page["before"]
        if before is None:
            break
    assert [chat["id"] for chat in chats] == [f"c{number}" for number in reversed(range(103))]
    (one,) = (await client.get("/extras/chats/export", params={"id": "c7"})).json()["chats"]
    assert one["messages"] == CHAT["messages"]
    async with http_client(fresh=True, max_json_depth=99) as other:
        for added, present in ((103, 0), (0, 103)):
            answer = (await other.post("/extras/chats/import", json={"chats": chats})).json()
            assert answer == {"added": added, "present": present, "refused": [], "chats": []}
        assert await listed(other, limit=200, folder="work") == [chat["id"] for chat in chats]
        read = (await other.post("/extras/chats/import?store=false", json={"chats": [one]})).json()
        assert (read["added"], read["chats"]) == (0, [one | {"messages": CHAT["messages"]}])
        assert (await other.get("/extras/chats/c7")).json()["messages"] == CHAT["messages"]


WRONG: dict[str, Any] = {
    "messages": "x",
    "messages.0.role": [{"id": "a", "role": "bishop", "text": ""}],
    "messages.0.id": [{"id": "a b", "role": "user", "text": ""}],
    "messages.0.text": [{"id": "a", "role": "user", "text": 1}],
    "messages.0.versions": [{"id": "a", "role": "user", "text": "", "versions": [[]]}],
    "title": "x" * 201,
    "folder": "x" * 101,
    "version": -1,
    "updated": 1e300,
    "settings": [],
}


@pytest.mark.parametrize("field", WRONG)
async def test_a_wrong_field_is_named(client: httpx.AsyncClient, field: str) -> None:
    body = {**CHAT, field.split(".")[0]: WRONG[field]}
    response = await client.put("/extras/chats/one", json=body)
    assert response.status_code in (400, 422), response.text
    place = response.json()["error"]["message"].replace("[", ".").replace("]", "")
    assert field in place, place
    assert await listed(client) == []


async def test_versions_within_versions_and_messages_have_limits(client: httpx.AsyncClient) -> None:
    def nested(depth: int) -> list[dict[str, Any]]:
        message: dict[str, Any] = {"id": "a", "role": "user", "text": ""}
        for _ in range(depth):
            message = {"id": "a", "role": "user", "text": "", "versions": [[message]]}
        return [message]

    await put(client, "deep", messages=nested(24))
    for messages, limit in ((nested(25), "24"), (CHAT["messages"][:1] * 20_001, "20000")):
        response = await client.put("/extras/chats/one", json={**CHAT, "messages": messages})
        refused(response, 400, "invalid_request")
        assert limit in response.json()["error"]["message"]


USES: dict[str, Callable[[httpx.AsyncClient], Any]] = {
    "get": lambda client: client.get("/extras/chats/one"),
    "change": lambda client: client.patch("/extras/chats/one", json={"title": "x"}),
    "delete": lambda client: client.delete("/extras/chats/one"),
    "restore": lambda client: client.post("/extras/chats/one/restore"),
    "export": lambda client: client.get("/extras/chats/export", params={"id": "one"}),
}


@pytest.mark.parametrize("who", ["another key", "another client of a proxy"])
async def test_a_chat_is_unknown_to_another_key(who: str) -> None:
    other = {"x-api-key": KEYS[1]} if who == "another key" else {"x-api-key": KEYS[0], CALLER.decode(): "two"}
    async with http_client(fresh=True, api_keys=KEYS) as client:
        client.headers["x-api-key"] = KEYS[0]
        await put(client, "one")
        client.headers.update(other)
        assert await listed(client) == await listed(client, q="cold") == []
        assert (await client.get("/extras/chats/export")).json()["chats"] == []
        for name, use in USES.items():
            response = await use(client)
            assert (name, response.status_code) == (name, 404)
            assert response.json()["error"]["code"] == "chat_not_found"
        await put(client, "one", title="Mine")
        for header in other:
            del client.headers[header]
        client.headers["x-api-key"] = KEYS[0]
        assert (await client.get("/extras/chats/one")).json()["title"] == "Weather"
        del client.headers["x-api-key"]
        assert (await client.get("/extras/chats")).status_code == 401


async def test_chats_outlive_the_server_and_a_damaged_journal(tmp_path: Path) -> None:
    async with journaled_server(tmp_path) as client:
        await put(client, "one")
    (tmp_path / "journal.sqlite3").write_bytes(b"x" * 5_000)
    async with journaled_server(tmp_path) as client:
        assert await listed(client) == ["one"]


async def test_a_damaged_file_of_chats_is_moved_aside_and_costs_no_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with journaled_server(tmp_path, models(saying("Hello."))) as client:
        await put(client, "one")
        answer = await ended(client, (await client.post("/v1/responses", json=BODY)).json()["id"])
    file = tmp_path / CHATS_FILE
    damaged = file.read_bytes()[:4096] + b"x" * 5_000
    file.write_bytes(damaged)
    async with journaled_server(tmp_path) as client:
        assert await listed(client) == []
        await put(client, "two")
        assert await ended(client, answer["id"]) == answer
    (aside,) = tmp_path.glob(f"{CHATS_FILE}.damaged-*")
    assert aside.read_bytes() == damaged
    assert aside.name in caplog.text


async def test_a_server_that_keeps_none_says_so(tmp_path: Path) -> None:
    async with journaled_server(tmp_path, chat_bytes=0) as client:
        assert (await client.get("/extras/chats")).json() == {"data": [], "before": None, "store": None}
        response = await client.put("/extras/chats/one", json=CHAT)
        refused(response, 400, "unsupported_operation")
        assert "`chat_bytes` is 0" in response.json()["error"]["message"]
    assert not (tmp_path / CHATS_FILE).exists()


async def test_a_full_file_is_507_and_the_chat_stays_as_it_was(tmp_path: Path) -> None:
    async with journaled_server(tmp_path, chat_bytes=1 << 20) as client:
        await put(client, "one")
        words = [{"id": "q", "role": "user", "text": " ".join(map(str, range(200_000)))}]
        response = await client.put("/extras/chats/one", json={**CHAT, "version": 1, "messages": words})
        refused(response, 507, "insufficient_storage")
        assert "`chat_bytes`" in response.json()["error"]["message"]
        assert (await client.get("/extras/chats/one")).json()["messages"] == CHAT["messages"]
