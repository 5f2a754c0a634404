"""/v1/responses in the background: without a client, over restarts of the server, and by owner."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from openai.types.responses import Response
from pydantic import TypeAdapter

from jan_serve.core.caller import client as caller
from jan_serve.dialects.shared import limits
from jan_serve.errors import EngineCrashed, InsufficientStorage
from jan_serve.ipc.messages import EngineEvent, EngineRequest
from jan_serve.journal.journal import Journal
from jan_serve.journal.logs import Log, Work, add_log
from tests.support.clients.response_events import Event, events_of
from tests.support.engine.fake_client import (
    FakeClient,
    FakeModels,
    Script,
    failing,
    fake_facts,
    prompt_text,
    saying,
)
from tests.support.servers.journaled import Gate, journaled_server

pytestmark = pytest.mark.anyio

PATH: Final = "/v1/responses"
BODY: Final[dict[str, Any]] = {"model": "fake", "input": "Hi.", "background": True}
TEMPLATE: Final = (
    "{% if tools %}<tools><tool_call>{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}{% endfor %}"
)
CALLING: Final = (
    "Let me see.\n",
    '<tool_call>\n{"name": "f", "argu',
    'ments": {}}\n</tool_call>\n<tool_call>\n',
    '{"name": "f", "arguments": {"a": 1}}\n</tool_call>',
)
TOOL: Final = {"type": "function", "name": "f", "parameters": {"type": "object"}}


def models(script: Script) -> FakeModels:
    return FakeModels(FakeClient(script=script, facts=fake_facts(chat_templates={"default": TEMPLATE})))


async def ended(client: httpx.AsyncClient, answer_id: str) -> Event:
    """The answer once it is whole: its stream ends then."""
    (await client.get(f"{PATH}/{answer_id}", params={"stream": True})).raise_for_status()
    found = (await client.get(f"{PATH}/{answer_id}")).raise_for_status()
    TypeAdapter(Response).validate_json(found.content)
    return found.json()


def text_of(response: Event) -> str:
    return response["output"][0]["content"][0]["text"]


async def test_an_answer_needs_no_client(tmp_path: Path) -> None:
    gate = Gate()
    async with journaled_server(tmp_path, models(gate.saying("Hel", "lo.", after=1))) as client:
        created = (await client.post(PATH, json=BODY)).json()
        assert (created["status"], created["background"], created["output"]) == ("queued", True, [])
        await gate.reached.wait()
        assert (await client.get(f"{PATH}/{created['id']}")).json()["status"] == "in_progress"
        gate.opened.set()
        response = await ended(client, created["id"])
        assert (response["status"], text_of(response)) == ("completed", "Hello.")


@pytest.mark.parametrize("end", ["done", "failed"])
async def test_a_request_that_stays_for_its_answer_is_seen_as_any_other(tmp_path: Path, end: str) -> None:
    script = saying("Hel", "lo.") if end == "done" else failing(EngineCrashed("died"), "Hel")
    async with journaled_server(tmp_path, models(script)) as client:
        headers = {"x-request-id": "watched"}
        await client.post(PATH, json=BODY | {"stream": True}, headers=headers)
        why = (await client.get("/extras/why/watched")).json()
        assert (why["state"], why["route"]) == (end, PATH)
        assert why["prompt_tokens"] > 0
        metrics = (await client.get("/metrics")).text
        assert "jan_serve_cancelled_total 0" in metrics


async def test_a_stream_is_taken_up_behind_any_event(tmp_path: Path) -> None:
    async with journaled_server(tmp_path, models(saying("Hel", "lo."))) as client:
        first = events_of((await client.post(PATH, json=BODY | {"stream": True})).text)
        assert [event["type"] for event in first[:3]] == [
            "response.created", "response.queued", "response.in_progress",
        ]  # fmt: skip
        assert [event["sequence_number"] for event in first] == list(range(len(first)))
        url = f"{PATH}/{first[0]['response']['id']}"
        for after in (None, *range(len(first) - 1)):
            query = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
            assert (
                events_of((await client.get(url, params=query)).text)
                == first[0 if after is None else after + 1 :]
            )


@pytest.mark.parametrize("cut", range(1, len(CALLING)))
async def test_a_new_server_goes_on_with_the_same_events(tmp_path: Path, cut: int) -> None:
    body = BODY | {"tools": [TOOL]}
    gate = Gate()
    async with journaled_server(tmp_path, models(gate.saying(*CALLING, after=cut))) as client:
        answer_id = (await client.post(PATH, json=body)).json()["id"]
        await gate.reached.wait()
        reading = asyncio.create_task(client.get(f"{PATH}/{answer_id}", params={"stream": True}))
        await asyncio.sleep(0)
    before = events_of((await reading).text)
    assert before[-1]["type"] not in ("response.completed", "response.failed")
    again = models(saying(*CALLING))
    async with journaled_server(tmp_path, again) as client:
        response = await ended(client, answer_id)
        after = events_of((await client.get(f"{PATH}/{answer_id}", params={"stream": True})).text)
    assert after[: len(before)] == before
    assert [item["type"] for item in response["output"]] == ["message", "function_call", "function_call"]
    deltas = "".join(event["delta"] for event in after if event["type"] == "response.output_text.delta")
    assert deltas.strip() == "Let me see."
    (request,) = again.clients[0].requests
    assert request.sampling.seed is not None


def weighing(weights: str, script: Script) -> FakeModels:
    return FakeModels(
        FakeClient(script=script, facts=fake_facts(chat_templates={"default": TEMPLATE}, weights=weights))
    )


@pytest.mark.parametrize(
    ("weights", "log"),
    [
        ("b" * 32, None),
        ("", None),
        ("a" * 32, b"\0"),
        ("a" * 32, b"\0\0\0\1\xc1"),
        ("a" * 32, b"\0\0\0\0"),
    ],
    ids=["others", "unknown", "cut", "no event", "empty"],
)
async def test_an_answer_that_cannot_go_on_fails_for_each_reader_and_is_no_mixture(
    tmp_path: Path, weights: str, log: bytes | None
) -> None:
    gate = Gate()
    script = gate.saying("one ", "two ", "three ", after=2)
    async with journaled_server(tmp_path, weighing("a" * 32, script)) as client:
        answer_id = (await client.post(PATH, json=BODY)).json()["id"]
        await gate.reached.wait()
        reading = asyncio.create_task(client.get(f"{PATH}/{answer_id}", params={"stream": True}))
        await asyncio.sleep(0)
    last = events_of((await reading).text)[-1]["sequence_number"]
    if log is not None:
        with contextlib.closing(sqlite3.connect(tmp_path / "journal.sqlite3")) as db, db:
            db.execute("UPDATE logs SET events = ?", (log,))
    again = weighing(weights, saying("ONE ", "TWO ", "THREE "))
    async with journaled_server(tmp_path, again) as client:
        response = await ended(client, answer_id)
        assert (response["status"], response["output"]) == ("failed", [])
        assert "answer" in response["error"]["message"]
        for after in (None, *range(last + 2)):
            query = {"stream": "true"} | ({} if after is None else {"starting_after": str(after)})
            events = events_of((await client.get(f"{PATH}/{answer_id}", params=query)).text)
            assert events[-1]["type"] == "response.failed"
            assert not any("delta" in event for event in events)
    assert not again.clients[0].requests
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.sqlite3")) as db:
        assert db.execute("SELECT count(*) FROM logs").fetchone() == (0,)


async def test_a_whole_answer_outlives_its_server_and_can_be_continued(tmp_path: Path) -> None:
    async with journaled_server(tmp_path, models(saying("Hel", "lo."))) as client:
        answer_id = (await client.post(PATH, json=BODY)).json()["id"]
        first = await ended(client, answer_id)
    later = models(saying("Bye."))
    async with journaled_server(tmp_path, later) as client:
        assert (await client.get(f"{PATH}/{answer_id}")).json() == first
        await client.post(PATH, json={"input": "And?", "previous_response_id": answer_id})
        assert prompt_text(later.clients[0].requests[-1]) == "[user]Hi.[assistant]Hello.[user]And?"
        items = (await client.get(f"{PATH}/{answer_id}/input_items")).json()["data"]
        assert [item["content"][0]["text"] for item in items] == ["Hi."]


async def test_a_continued_conversation_is_whole_for_the_next_server(tmp_path: Path) -> None:
    gate = Gate()
    async with journaled_server(tmp_path, models(saying("Hello."))) as client:
        kept = (await client.post(PATH, json={"input": "Hi."})).json()["id"]
    async with journaled_server(tmp_path, models(saying("Hello."))) as client:
        refused = await client.post(PATH, json=BODY | {"previous_response_id": kept})
        assert refused.json()["error"]["code"] == "previous_response_not_found"
    script = saying("Hello.")
    first = models(script)
    async with journaled_server(tmp_path, first) as client:
        kept = (await client.post(PATH, json={"input": "Hi."})).json()["id"]
        first.clients[0].script = gate.saying("B", "ye.", after=1)
        next_id = (
            await client.post(PATH, json=BODY | {"input": "And?", "previous_response_id": kept})
        ).json()["id"]
        await gate.reached.wait()
    again = models(saying("B", "ye."))
    async with journaled_server(tmp_path, again) as client:
        response = await ended(client, next_id)
        assert (text_of(response), response["previous_response_id"]) == ("Bye.", kept)
        assert prompt_text(again.clients[0].requests[0]) == "[user]Hi.[assistant]Hello.[user]And?"


async def test_cancelling_keeps_what_is_there_and_may_be_repeated(tmp_path: Path) -> None:
    gate = Gate()
    fake = models(gate.saying("Hel", "lo.", after=1))
    async with journaled_server(tmp_path, fake) as client:
        answer_id = (await client.post(PATH, json=BODY)).json()["id"]
        await gate.reached.wait()
        reading = asyncio.create_task(client.get(f"{PATH}/{answer_id}", params={"stream": True}))
        await asyncio.sleep(0)
        cancelled, again = [(await client.post(f"{PATH}/{answer_id}/cancel")).json() for _ in range(2)]
        assert (cancelled["status"], text_of(cancelled)) == ("cancelled", "Hel")
        assert again == cancelled
        assert events_of((await reading).text)[-1]["response"] == cancelled
        assert len(fake.clients[0].closed_early) == 1
    async with journaled_server(tmp_path, models(saying("no"))) as client:
        assert (await client.get(f"{PATH}/{answer_id}")).json() == cancelled


async def test_one_answer_is_cancelled_once(tmp_path: Path) -> None:
    gate = Gate()
    async with journaled_server(tmp_path, models(gate.saying("Hel", "lo.", after=1))) as client:
        answer_id = (await client.post(PATH, json=BODY)).json()["id"]
        await gate.reached.wait()
        reading = asyncio.create_task(client.get(f"{PATH}/{answer_id}", params={"stream": True}))
        await asyncio.sleep(0)
        found = await asyncio.gather(*(client.post(f"{PATH}/{answer_id}/cancel") for _ in range(3)))
        assert [each.json()["status"] for each in found] == ["cancelled"] * 3
        events = events_of((await client.get(f"{PATH}/{answer_id}", params={"stream": True})).text)
        assert events == events_of((await reading).text)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))


async def test_what_ends_already_is_not_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reply of a cancel is what the journal has."""
    from jan_serve.journal.answers import AnswerTable

    end, reached, opened = AnswerTable.end, asyncio.Event(), asyncio.Event()

    async def slow_end(*args: Any) -> None:
        await end(*args)
        reached.set()
        await opened.wait()

    monkeypatch.setattr(AnswerTable, "end", slow_end)
    async with journaled_server(tmp_path, models(saying("Hel", "lo."))) as client:
        answer_id = (await client.post(PATH, json=BODY)).json()["id"]
        await reached.wait()
        cancelling = asyncio.create_task(client.post(f"{PATH}/{answer_id}/cancel"))
        await asyncio.sleep(0)
        opened.set()
        cancelled = (await cancelling).json()
        assert cancelled["status"] == "completed"
        assert (await client.get(f"{PATH}/{answer_id}")).json() == cancelled


async def test_a_row_that_cannot_be_read_is_told_of_and_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    async with journaled_server(tmp_path, models(gate.saying("Hel", "lo.", after=0))) as client:
        broken, last = [(await client.post(PATH, json=BODY)).json()["id"] for _ in range(2)]
        await gate.reached.wait()
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.sqlite3", isolation_level=None)) as db:
        db.execute("UPDATE answers SET request = ? WHERE id = ?", (b'{"input": 1}', broken))
    async with journaled_server(tmp_path, models(saying("Hel", "lo."))) as client:
        assert text_of(await ended(client, last)) == "Hello."
        found = (await client.get(f"{PATH}/{broken}")).json()
        assert (found["status"], found["error"]["code"]) == ("failed", "server_error")
        assert broken in caplog.text
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.sqlite3")) as db:
        assert db.execute("SELECT count(*) FROM answers WHERE reply IS NULL").fetchone() == (0,)


async def test_what_is_taken_up_twice_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is full at the first answer that cannot be read, behind one that can."""
    from jan_serve.journal.answers import AnswerTable

    end, failures = AnswerTable.end, [InsufficientStorage("full for a moment")]

    async def full_once(*args: Any) -> None:
        if failures:
            raise failures.pop()
        await end(*args)

    gate = Gate()
    async with journaled_server(tmp_path, models(gate.saying("Hel", "lo.", after=0))) as client:
        first, broken = [(await client.post(PATH, json=BODY)).json()["id"] for _ in range(2)]
        await gate.reached.wait()
    with contextlib.closing(sqlite3.connect(tmp_path / "journal.sqlite3", isolation_level=None)) as db:
        db.execute("UPDATE answers SET request = ? WHERE id = ?", (b'{"input": 1}', broken))
    again, held = models(saying("Hel", "lo.")), Gate()
    again.clients[0].script = held.saying("Hel", "lo.", after=1)
    monkeypatch.setattr(AnswerTable, "end", full_once)
    async with journaled_server(tmp_path, again) as client:
        assert (await client.get(f"{PATH}/{broken}")).json()["status"] == "failed"
        await held.reached.wait()
        held.opened.set()
        assert text_of(await ended(client, first)) == "Hello."
    assert not failures
    assert len(again.clients[0].requests) == 1


async def test_a_conversation_longer_than_a_request_goes_on(
    tmp_path: Path,
) -> None:
    most = limits.MAX_MESSAGES
    turns = [{"role": "user", "content": "x"}] * most
    gate = Gate()
    first = models(saying("Hello."))
    async with journaled_server(tmp_path, first, response_store_bytes=1 << 30) as client:
        kept = (await client.post(PATH, json={"input": turns})).json()["id"]
        first.clients[0].script = gate.saying("B", "ye.", after=1)
        more = BODY | {"input": turns[:2], "previous_response_id": kept}
        next_id = (await client.post(PATH, json=more)).json()["id"]
        await gate.reached.wait()
    async with journaled_server(tmp_path, models(saying("B", "ye."))) as client:
        assert text_of(await ended(client, next_id)) == "Bye."


async def test_an_answer_that_the_journal_did_not_take_can_be_cancelled(tmp_path: Path) -> None:
    long = ["y " * 30_000] * 8
    async with journaled_server(tmp_path, models(saying(*long)), journal_bytes=200_000) as client:
        response = await ended(client, (await client.post(PATH, json=BODY)).json()["id"])
        cancelled = await client.post(f"{PATH}/{response['id']}/cancel")
        assert (cancelled.status_code, cancelled.json()) == (200, response)
        assert (await client.delete(f"{PATH}/{response['id']}")).json()["deleted"] is True


async def test_a_failure_is_the_answer(tmp_path: Path) -> None:
    async with journaled_server(tmp_path, models(failing(EngineCrashed("It ended."), "Hel"))) as client:
        response = await ended(client, (await client.post(PATH, json=BODY)).json()["id"])
        assert (response["status"], response["error"]["code"]) == ("failed", "server_error")


@pytest.mark.parametrize("is_open", [True, False])
async def test_a_deleted_answer_is_gone_at_once_and_for_ever(tmp_path: Path, is_open: bool) -> None:
    gate = Gate()
    async with journaled_server(tmp_path, models(gate.saying("Hel", "lo.", after=1))) as client:
        answer_id = (await client.post(PATH, json=BODY)).json()["id"]
        await gate.reached.wait()
        if not is_open:
            gate.opened.set()
            await ended(client, answer_id)
        assert (await client.delete(f"{PATH}/{answer_id}")).json()["deleted"] is True
        assert (await client.get(f"{PATH}/{answer_id}")).status_code == 404
        assert (await client.delete(f"{PATH}/{answer_id}")).status_code == 404
    async with journaled_server(tmp_path) as client:
        assert (await client.get(f"{PATH}/{answer_id}")).status_code == 404


async def test_another_key_finds_nothing(tmp_path: Path) -> None:
    keys = {"api_keys": ("one", "two")}
    gate = Gate()
    async with journaled_server(
        tmp_path, models(gate.saying("Hel", "lo.", after=1)), key="one", **keys
    ) as client:
        open_id = (await client.post(PATH, json=BODY)).json()["id"]
        await gate.reached.wait()
        other = {"authorization": "Bearer two"}
        for method, path in itertools.product(("GET", "DELETE"), ("", "?stream=true")):
            assert (await client.request(method, f"{PATH}/{open_id}{path}", headers=other)).status_code == 404
        assert (await client.post(f"{PATH}/{open_id}/cancel", headers=other)).status_code == 404
        assert (await client.get(f"{PATH}/{open_id}/input_items", headers=other)).status_code == 404
    async with journaled_server(tmp_path, models(saying("Hel", "lo.")), key="two", **keys) as client:
        assert (await client.get(f"{PATH}/{open_id}")).status_code == 404
        own = {"authorization": "Bearer one"}
        assert (await client.get(f"{PATH}/{open_id}?stream=true", headers=own)).status_code == 200
        assert (await client.get(f"{PATH}/{open_id}", headers=other)).status_code == 404


async def test_an_answer_that_another_key_wakes_is_no_work_of_that_key(tmp_path: Path) -> None:
    keys = {"api_keys": ("one", "two")}
    other = {"authorization": "Bearer two"}
    gate = Gate()
    seen: list[str] = []

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        seen.append(caller.get())
        async for event in saying("Hel", "lo.")(request):
            yield event

    async with contextlib.AsyncExitStack() as stack:
        async with journaled_server(
            tmp_path, models(gate.saying("Hel", "lo.", after=0)), key="one", **keys
        ) as client:
            answer_id = (await client.post(PATH, json=BODY)).json()["id"]
            await gate.reached.wait()
            # It cannot take the answer up as it starts: the journal is in use.
            server = journaled_server(tmp_path, models(script), key="one", **keys)
            later = await stack.enter_async_context(server)
        assert (await later.get(f"{PATH}/none", headers=other)).status_code == 404
        assert text_of(await ended(later, answer_id)) == "Hello."
        await later.post(PATH, json={"input": "Hi."}, headers=other)
        shown = (await later.get("/extras/requests")).json()["data"]
        assert [line["route"] for line in shown if line["route"] != PATH] == []
    woken, own = seen
    assert woken != own


@pytest.mark.parametrize(
    ("fields", "query", "param"),
    [
        ({"store": False}, "", "store"),
        ({}, "?starting_after=1", "starting_after"),
        ({"background": False}, "?stream=true", "stream"),
    ],
)
async def test_what_makes_no_sense_is_refused(tmp_path: Path, fields: Any, query: str, param: str) -> None:
    async with journaled_server(tmp_path) as client:
        found = await client.post(PATH, json=BODY | fields)
        if found.status_code == 200:
            found = await client.get(f"{PATH}/{found.json()['id']}{query}")
        assert (found.status_code, found.json()["error"]["param"]) == (400, param)


async def test_a_server_without_a_journal_says_so(tmp_path: Path) -> None:
    async with journaled_server(tmp_path, journal_bytes=0) as client:
        refused = await client.post(PATH, json=BODY)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_operation")
        assert (await client.get(f"{PATH}/resp_1")).status_code == 404


async def test_the_journal_of_another_server_is_named_and_what_needs_none_is_served(tmp_path: Path) -> None:
    async with (
        journaled_server(tmp_path, models(saying("Hello."))) as first,
        journaled_server(tmp_path, models(saying("Hello."))) as client,
    ):
        await ended(first, (await first.post(PATH, json=BODY)).json()["id"])
        kept = (await client.post(PATH, json={"input": "Hi."})).json()
        url = f"{PATH}/{kept['id']}"
        for method, path, body in (
            ("POST", PATH, BODY),
            ("DELETE", f"{PATH}/none", None),
            ("GET", f"{PATH}/none", None),
            ("GET", f"{PATH}/none/input_items", None),
            ("POST", f"{PATH}/none/cancel", None),
            ("POST", PATH, {"input": "And?", "previous_response_id": "none"}),
            ("GET", "/v1/files", None),
        ):
            refused = await client.request(method, path, json=body)
            error = refused.json()["error"]
            assert (refused.status_code, error["code"]) == (503, "journal_unusable")
            assert "Another server" in error["message"]
            assert str(tmp_path) not in error["message"]
        assert (await client.get(url)).json() == kept
        assert (await client.get(f"{url}/input_items")).status_code == 200
        assert (await client.delete(url)).json()["deleted"] is True


async def test_a_full_journal_refuses_new_answers_and_loses_none_that_it_has(tmp_path: Path) -> None:
    async with journaled_server(tmp_path, journal_bytes=200_000) as client:
        first = (await client.post(PATH, json=BODY)).json()["id"]
        await ended(client, first)
        long = BODY | {"input": "x " * 20_000}
        found = await client.post(PATH, json=long)
        while found.status_code == 200:
            found = await client.post(PATH, json=long)
        assert (found.status_code, found.json()["error"]["code"]) == (507, "insufficient_storage")
        assert (await client.get(f"{PATH}/{first}")).status_code == 200


async def test_an_answer_goes_on_when_the_journal_is_full(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = ["y " * 30_000] * 8
    async with journaled_server(tmp_path, models(saying(*long)), journal_bytes=200_000) as client:
        response = await ended(client, (await client.post(PATH, json=BODY)).json()["id"])
        assert text_of(response) == "".join(long)
        assert "is full" in caplog.text


async def test_nothing_is_kept_behind_events_that_the_journal_has_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = list[Log]()

    async def full_once(journal: Journal, work: Work, log: Log) -> None:
        added.append(log)
        if len(added) == 2:
            raise InsufficientStorage("full for a moment")
        await add_log(journal, work, log)

    monkeypatch.setattr("jan_serve.journal.logs.add_log", full_once)
    async with journaled_server(tmp_path, models(saying("a ", "b ", "c ", "d "))) as client:
        response = await ended(client, (await client.post(PATH, json=BODY)).json()["id"])
        assert text_of(response) == "a b c d "
    assert len(added) == 2


def test_the_journal_is_for_its_owner_alone(tmp_path: Path) -> None:
    async def made() -> None:
        async with journaled_server(tmp_path) as client:
            await ended(client, (await client.post(PATH, json=BODY)).json()["id"])
            modes = {file.stat().st_mode & 0o777 for file in tmp_path.glob("journal.sqlite3*")}
            assert modes == {0o600}

    asyncio.run(made())
    with sqlite3.connect(tmp_path / "journal.sqlite3") as db:
        assert db.execute("SELECT count(*) FROM answers WHERE reply IS NOT NULL").fetchone() == (1,)
