"""Answers that go on while no page is open: a chat names its response, and whoever opens the chat finds the answer."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from jan_serve.errors import EngineCrashed
from jan_serve.journal.schema import CHATS, CHATS_FILE
from tests.support.engine.fake_client import FakeClient, FakeModels, Script, failing, fake_facts, saying
from tests.support.servers.fronts import refused
from tests.support.servers.journaled import Gate, journaled_server

pytestmark = pytest.mark.anyio

BODY: Final[dict[str, Any]] = {"model": "fake", "input": "Hi.", "background": True}
TEMPLATE: Final = (
    "{% if tools %}<tools><tool_call>{% endif %}{% for m in messages %}{{ m.content or '' }}{% endfor %}"
)
TOOL: Final = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CALLING: Final = ("Let me see.\n", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>')


def models(script: Script) -> FakeModels:
    return FakeModels(FakeClient(script=script, facts=fake_facts(chat_templates={"default": TEMPLATE})))


async def begun(client: httpx.AsyncClient, **body: Any) -> str:
    response = await client.post("/v1/responses", json=BODY | body)
    return response.raise_for_status().json()["id"]


async def put(
    client: httpx.AsyncClient, response: str | None, version: int = 0, **answer: Any
) -> dict[str, Any]:
    """A chat whose answer is to come; it is the second version of its message."""
    old = {"id": "a1", "role": "assistant", "text": "Once."}
    reply = {"id": "a2", "role": "assistant", "text": "", "version": 1, "versions": [[old]], **answer}
    if response is not None:
        reply["response"] = response
    messages = [{"id": "q", "role": "user", "text": "Hi."}, reply]
    written = await client.put("/extras/chats/one", json={"version": version, "messages": messages})
    return written.raise_for_status().json()


@asynccontextmanager
async def waiting_chat(
    folder: Path, gate: Gate, *, after: int
) -> AsyncGenerator[tuple[httpx.AsyncClient, str]]:
    """A client, and the id of the response that its chat waits for: it stands at the gate."""
    async with journaled_server(folder, models(gate.saying("Hel", "lo.", after=after))) as client:
        response = await begun(client)
        await put(client, response)
        await gate.reached.wait()
        yield client, response


async def answer_in(client: httpx.AsyncClient) -> dict[str, Any]:
    chat = (await client.get("/extras/chats/one")).raise_for_status().json()
    answer = chat["messages"][1]
    assert [tail[0]["id"] for tail in answer.pop("versions")] == ["a1"]
    for name, value in (("id", "a2"), ("role", "assistant"), ("version", 1)):
        assert answer.pop(name) == value
    return answer


async def ended(client: httpx.AsyncClient, response: str) -> None:
    """Wait until it is: its stream ends then."""
    (await client.get(f"/v1/responses/{response}", params={"stream": True})).raise_for_status()


async def exists(client: httpx.AsyncClient, response: str) -> bool:
    return (await client.get(f"/v1/responses/{response}")).status_code == 200


@pytest.mark.parametrize("opened_by", ["chat", "list", "search", "export", "one export"])
async def test_whoever_reads_the_chats_finds_the_whole_answer(tmp_path: Path, opened_by: str) -> None:
    async with journaled_server(tmp_path, models(saying("Hel", "lo, sparrow."))) as client:
        response = await begun(client)
        head = await put(client, response)
        await ended(client, response)
        match opened_by:
            case "list":
                (listed,) = (await client.get("/extras/chats")).json()["data"]
                assert listed["version"] == 2
            case "search":
                (listed,) = (await client.get("/extras/chats", params={"q": "sparr"})).json()["data"]
                assert "Hello" in listed["excerpt"]
            case "export" | "one export":
                query = {"id": "one"} if opened_by == "one export" else {}
                (chat,) = (await client.get("/extras/chats/export", params=query)).json()["chats"]
                assert chat["messages"][1]["text"] == "Hello, sparrow."
            case _:
                pass
        answer = await answer_in(client)
        timings = answer.pop("timings")
        assert timings["predicted_n"] > 0
        assert answer == {"text": "Hello, sparrow.", "finish": "stop"}
        assert not await exists(client, response)  # once is enough
        assert (await client.get("/extras/chats/one")).json()["version"] == head["version"] + 1


ENDS: Final[dict[str, tuple[Script, dict[str, Any], dict[str, Any]]]] = {
    "calls": (
        saying(*CALLING),
        {"tools": [TOOL]},
        {"text": "Let me see.", "finish": "tool_calls", "calls": [{"name": "f", "arguments": '{"a": 1}'}]},
    ),
    "length": (saying("Hel", reason="length"), {}, {"text": "Hel", "finish": "length"}),
    "failure": (
        failing(EngineCrashed("The model's process died."), "Hel"),
        {},
        {"text": "Hel", "error": "The model's process died."},
    ),
    "thought": (
        saying("<think>\nSo.\n</think>\n\nYes."),
        {},
        {"text": "Yes.", "reasoning": "So.", "finish": "stop"},
    ),
}


@pytest.mark.parametrize("end", ENDS)
async def test_each_end_of_an_answer_comes_into_the_chat(tmp_path: Path, end: str) -> None:
    script, body, wanted = ENDS[end]
    async with journaled_server(tmp_path, models(script)) as client:
        response = await begun(client, **body)
        await put(client, response, text="H")  # as far as the page came
        await ended(client, response)
        answer = await answer_in(client)
        for call in answer.get("calls", ()):
            assert call.pop("id")
        answer.pop("timings", None)
        answer["text"] = answer["text"].strip()
        assert answer == wanted
        assert not await exists(client, response)


async def test_an_answer_that_is_written_still_is_named_until_it_ends(tmp_path: Path) -> None:
    gate = Gate()
    async with waiting_chat(tmp_path, gate, after=1) as (client, response):
        assert (await answer_in(client))["response"] == response
        assert (await client.get("/extras/chats")).json()["data"][0]["version"] == 1
        gate.opened.set()
        await ended(client, response)
        assert (await answer_in(client))["text"] == "Hello."


@pytest.mark.parametrize("cut", [0, 1])
async def test_a_new_server_goes_on_with_the_answer(tmp_path: Path, cut: int) -> None:
    async with waiting_chat(tmp_path, Gate(), after=cut) as (_, response):
        pass
    async with journaled_server(tmp_path, models(saying("Hel", "lo."))) as client:
        await ended(client, response)
        assert (await answer_in(client))["text"] == "Hello."


async def test_pages_that_write_the_answer_too_leave_one(tmp_path: Path) -> None:
    async with journaled_server(tmp_path, models(saying("Hello."))) as client:
        response = await begun(client)
        await put(client, response)
        await ended(client, response)
        await put(client, None, 1, text="Hello.", finish="stop")  # the page that asked
        assert not await exists(client, response)
        late = await client.put("/extras/chats/one", json={"version": 1, "messages": []})
        refused(late, 409, "chat_conflict")
        assert await answer_in(client) == {"text": "Hello.", "finish": "stop"}
        (chat,) = (await client.get("/extras/chats/export")).json()["chats"]
        assert len(chat["messages"]) == 2


async def test_a_chat_that_is_deleted_ends_its_answer_and_comes_back_with_what_it_had(tmp_path: Path) -> None:
    async with waiting_chat(tmp_path, Gate(), after=1) as (client, response):
        await client.delete("/extras/chats/one")
        assert not await exists(client, response)
        assert (await client.get("/extras/chats")).json()["data"] == []
        await client.post("/extras/chats/one/restore")
        assert await answer_in(client) == {"text": "Hel", "finish": "stopped"}


@pytest.mark.parametrize("why", ["deleted", "cancelled", "the journal is lost", "another key's"])
async def test_an_answer_that_is_gone_or_stopped_says_so(tmp_path: Path, why: str) -> None:
    gate = Gate()
    keys = {"api_keys": ("k-one", "k-two")}
    async with journaled_server(
        tmp_path, models(gate.saying("Hel", "lo.", after=1)), key="k-one", **keys
    ) as client:
        response = await begun(client)
        own = client.headers["authorization"]
        if why == "another key's":
            client.headers["authorization"] = "Bearer k-two"
        await put(client, response, text="H")
        await gate.reached.wait()
        if why == "deleted":
            await client.delete(f"/v1/responses/{response}")
        elif why == "cancelled":
            await client.post(f"/v1/responses/{response}/cancel")
        if why != "the journal is lost":
            stopped = {"text": "Hel", "finish": "stopped"}
            lost = {"text": "H", "error": "The server no longer has this answer."}
            assert await answer_in(client) == (stopped if why == "cancelled" else lost)
        if why == "another key's":
            client.headers["authorization"] = own
            assert await exists(client, response)
    if why == "the journal is lost":
        (tmp_path / "journal.sqlite3").write_bytes(b"x" * 5_000)
        async with journaled_server(tmp_path, models(saying("x")), key="k-one", **keys) as client:
            assert (await answer_in(client))["error"] == "The server no longer has this answer."


async def test_a_full_file_of_chats_leaves_the_answer_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with journaled_server(tmp_path, models(saying("x" * 20_000)), chat_bytes=1 << 17) as client:
        response = await begun(client)
        await put(client, response)
        await ended(client, response)
        number = 0
        while (await client.put(f"/extras/chats/f{number}", json=filler(number))).status_code == 200:
            number += 1
        assert (await answer_in(client))["response"] == response
        assert await exists(client, response)
        for each in range(number):
            await client.delete(f"/extras/chats/f{each}")
    monkeypatch.setattr("jan_serve.journal.chats.RESTORABLE_MS", 0)
    async with journaled_server(tmp_path, models(saying("x")), chat_bytes=1 << 17) as client:
        await client.get("/extras/chats")  # erases the deleted ones
        assert len((await answer_in(client))["text"]) == 20_000


def filler(number: int) -> dict[str, Any]:
    words = " ".join(f"{number}-{word}" for word in range(400))
    return {"messages": [{"id": "q", "role": "user", "text": words}]}


async def test_a_chat_waits_for_few_answers(tmp_path: Path) -> None:
    async with journaled_server(tmp_path) as client:
        messages = [
            {"id": f"a{each}", "role": "assistant", "text": "", "response": f"r{each}"} for each in range(17)
        ]
        written = await client.put("/extras/chats/one", json={"messages": messages})
        refused(written, 400, "invalid_request")
        assert "16 items have a `response`" in written.json()["error"]["message"]
        bad = [{"id": "a", "role": "assistant", "text": "", "response": "../models"}]
        written = await client.put("/extras/chats/one", json={"messages": bad})
        assert written.status_code == 422
        assert "messages[0].response" in written.json()["error"]["message"]


async def test_a_file_of_chats_from_before_is_read(tmp_path: Path) -> None:
    first = CHATS.migrations[0]
    with sqlite3.connect(tmp_path / CHATS_FILE) as old:
        old.executescript(f"{first}; PRAGMA user_version = 1;")
    old.close()
    async with journaled_server(tmp_path, models(saying("Hello."))) as client:
        response = await begun(client)
        await put(client, response)
        await ended(client, response)
        assert (await answer_in(client))["text"] == "Hello."
