"""/v1/files and /v1/batches, driven by OpenAI's client over fake models."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import closing
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from openai.types import Batch

from jan_serve.core.daily_hours import DailyHours
from jan_serve.errors import EngineCrashed, InvalidRequest
from jan_serve.ipc.messages import Accepted, Chunk, EngineEvent, EngineRequest
from jan_serve.journal.batches import Batch as StoredBatch
from jan_serve.journal.batches import BatchTable
from jan_serve.journal.journal import FILE_NAME
from tests.support.engine.fake_client import (
    FakeClient,
    FakeModels,
    Script,
    endings,
    fake_facts,
    prompt_text,
    saying,
)
from tests.support.servers.journaled import Gate, journaled_server

pytestmark = pytest.mark.anyio

CHAT: Final = "/v1/chat/completions"
KEY: Final = "sk-one"


def client_of(client: httpx.AsyncClient, key: str = KEY) -> AsyncOpenAI:
    of_either_httpx: Any = client
    return AsyncOpenAI(
        api_key=key, base_url="http://localhost/v1", http_client=of_either_httpx, max_retries=0
    )


def models(script: Script) -> FakeModels:
    template = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    return FakeModels(FakeClient(script=script, facts=fake_facts(chat_templates={"default": template})))


def row(number: int, url: str = CHAT, **body: Any) -> dict[str, Any]:
    body = body or {"messages": [{"role": "user", "content": f"Say {number}."}]}
    return {"custom_id": f"line-{number}", "method": "POST", "url": url, "body": {"model": "fake"} | body}


def jsonl(rows: Sequence[object]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in rows)


async def begun(client: AsyncOpenAI, content: bytes, endpoint: Any = CHAT, **fields: Any) -> Batch:
    file = await client.files.create(file=("input.jsonl", content), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", **fields
    )


async def ended(client: AsyncOpenAI, batch_id: str) -> Batch:
    async with asyncio.timeout(60):
        while True:
            batch = await client.batches.retrieve(batch_id)
            if batch.status in ("completed", "failed", "expired", "cancelled"):
                return batch
            await asyncio.sleep(0.01)


async def rows_of(client: AsyncOpenAI, file_id: str | None) -> list[dict[str, Any]]:
    if file_id is None:
        return []
    content = await client.files.content(file_id)
    return [json.loads(line) for line in content.text.splitlines()]


def echo(*, unless: str = "\0") -> Script:
    """Says the prompt; refuses prompts with a text."""

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        text = prompt_text(request)
        if unless in text:
            raise InvalidRequest("not this", param="messages")
        yield Accepted(request.id, len(text))
        yield Chunk(0, text, id=request.id)
        for event in endings(request, 1):
            yield event

    return script


async def answered_lines(http: httpx.AsyncClient, batch_id: str) -> int:
    counts = (await client_of(http).batches.retrieve(batch_id)).request_counts
    assert counts is not None
    return counts.completed


async def test_each_line_is_answered_or_refused_as_online(tmp_path: Path) -> None:
    rows = [row(0), row(1), row(2, messages=[]), row(3, model="none", messages=[]), row(4, temperature=-1)]
    async with journaled_server(tmp_path, models(echo(unless="Say 1"))) as http:
        client = client_of(http)
        batch = await ended(client, (await begun(client, jsonl(rows), metadata={"a": "b"})).id)
        assert (batch.status, batch.metadata, batch.model) == ("completed", {"a": "b"}, "fake")
        assert batch.request_counts is not None
        assert batch.request_counts.to_dict() == {"total": 5, "completed": 1, "failed": 4}
        (answer,) = await rows_of(client, batch.output_file_id)
        assert answer["custom_id"] == "line-0"
        assert answer["response"]["status_code"] == 200
        assert answer["response"]["body"]["choices"][0]["message"]["content"] == "[user]Say 0."
        errors = {each["custom_id"]: each for each in await rows_of(client, batch.error_file_id)}
        assert sorted(errors) == ["line-1", "line-2", "line-3", "line-4"]
        for each, body in zip(rows[2:], (errors[f"line-{n}"] for n in (2, 3, 4)), strict=True):
            online = await http.post(CHAT, json=each["body"])
            assert body["response"]["status_code"] == online.status_code
            assert body["response"]["body"] == online.json()
            assert body["response"]["request_id"]


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "Hi."}]}),
        ("/v1/completions", {"prompt": "Hi."}),
        ("/v1/embeddings", {"input": "Hi."}),
        ("/v1/responses", {"input": "Hi."}),
    ],
)
async def test_every_endpoint_answers_in_its_own_form(tmp_path: Path, endpoint: str, body: Any) -> None:
    async with journaled_server(tmp_path, models(saying("Hello."))) as http:
        client = client_of(http)
        batch = await ended(client, (await begun(client, jsonl([row(0, endpoint, **body)]), endpoint)).id)
        (answer,) = await rows_of(client, batch.output_file_id)
        online = (await http.post(endpoint, json={"model": "fake"} | body)).json()
        assert answer["response"]["body"].keys() == online.keys()


@pytest.mark.parametrize("done", range(4))
async def test_a_new_server_answers_the_other_lines_and_none_twice(tmp_path: Path, done: int) -> None:
    seen: list[str] = []
    gate = asyncio.Event()

    def script(most: int | None) -> Script:
        async def answer(request: EngineRequest) -> AsyncIterator[EngineEvent]:
            if most is not None and len(seen) >= most:
                gate.set()
                await asyncio.Event().wait()
            seen.append(prompt_text(request))
            async for event in echo()(request):
                yield event

        return answer

    rows = [row(number) for number in range(4)]
    async with journaled_server(tmp_path, models(script(done))) as http:
        batch_id = (await begun(client_of(http), jsonl(rows))).id
        await gate.wait()
        async with asyncio.timeout(60):
            while await answered_lines(http, batch_id) < done:
                await asyncio.sleep(0.01)
    async with journaled_server(tmp_path, models(script(None))) as http:
        client = client_of(http)
        batch = await ended(client, batch_id)
        answers = await rows_of(client, batch.output_file_id)
    assert [each["custom_id"] for each in answers] == [each["custom_id"] for each in rows]
    assert sorted(seen) == [f"[user]Say {number}." for number in range(4)]


ENDPOINTS = [
    (CHAT, {"messages": [{"role": "user", "content": "Count."}], "n": 2}),
    ("/v1/completions", {"prompt": "Count."}),
    ("/v1/responses", {"input": "Count."}),
]


@pytest.mark.parametrize("cut", range(3))
@pytest.mark.parametrize(("endpoint", "body"), ENDPOINTS)
async def test_a_new_server_goes_on_with_a_line_that_was_cut_off(
    tmp_path: Path, endpoint: str, body: Any, cut: int
) -> None:
    text = await cut_text(tmp_path, endpoint, body, cut, after=models_of("first"))
    assert "".join(("one ", "two ", "three ")[:cut]) + "".join(("ONE ", "TWO ", "THREE ")[cut:]) in text


USELESS = {
    "another model": None,
    "no events": b"x",
    "damaged": b"\0\0\0\1x",
    "an end without a beginning": b"\0\0\0\1\xc0",
}


@pytest.mark.parametrize("log", USELESS.values(), ids=USELESS)
@pytest.mark.parametrize(("endpoint", "body"), ENDPOINTS)
async def test_a_line_begins_anew_if_what_is_written_of_it_is_useless(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, endpoint: str, body: Any, log: bytes | None
) -> None:
    after = models_of("second" if log is None else "first")
    text = await cut_text(tmp_path, endpoint, body, 2, after=after, log=log)
    assert "ONE TWO THREE" in text
    assert "begins anew" in caplog.text


async def test_a_line_of_several_prompts_begins_anew(tmp_path: Path) -> None:
    body = {"prompt": ["Count.", "Count again."]}
    text = await cut_text(tmp_path, "/v1/completions", body, 2, after=models_of("first"))
    assert text.count("ONE TWO THREE") == 2


def models_of(weights: str) -> Callable[[Script], FakeModels]:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    facts = fake_facts(
        chat_templates={"default": template}, weights=blake2b(weights.encode(), digest_size=16).hexdigest()
    )
    return lambda script: FakeModels(FakeClient(script=script, facts=facts))


async def cut_text(
    folder: Path,
    endpoint: str,
    body: Any,
    cut: int,
    *,
    after: Callable[[Script], FakeModels],
    log: bytes | None = None,
) -> str:
    """The answer to a line whose server ends before its piece `cut`. log: put in the place of what is written."""
    gate = Gate()
    first = models_of("first")(gate.saying("one ", "two ", "three ", after=cut))
    async with journaled_server(folder, first) as http:
        batch_id = (await begun(client_of(http), jsonl([row(0, endpoint, **body)]), endpoint)).id
        async with asyncio.timeout(60):
            await gate.reached.wait()
    with closing(sqlite3.connect(folder / FILE_NAME)) as db, db:
        if log is not None:
            db.execute("UPDATE logs SET events = ?", (log,))
    async with journaled_server(folder, after(saying("ONE ", "TWO ", "THREE "))) as http:
        client = client_of(http)
        batch = await ended(client, batch_id)
        (answer,) = await rows_of(client, batch.output_file_id)
    with closing(sqlite3.connect(folder / FILE_NAME)) as db, db:
        assert db.execute("SELECT count(*) FROM logs").fetchone() == (0,)
    return json.dumps(answer["response"]["body"])


async def test_lines_with_a_common_prefix_follow_each_other(tmp_path: Path) -> None:
    fake = models(echo())
    rows = [
        row(
            number,
            messages=[
                {"role": "system", "content": f"S{number % 3}"},
                {"role": "user", "content": str(number)},
            ],
        )
        for number in range(12)
    ]
    async with journaled_server(tmp_path, fake) as http:
        client = client_of(http)
        batch = await ended(client, (await begun(client, jsonl(rows))).id)
        answers = await rows_of(client, batch.output_file_id)
    systems = [prompt_text(request)[8:10] for request in fake.clients[0].requests]
    assert systems == sorted(systems)
    assert [each["custom_id"] for each in answers] == [f"line-{number}" for number in range(12)]


GOOD: Final = row(0)


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        (b"\n\n", "empty_file", None),
        (jsonl([GOOD]) + b"{\n", "invalid_json_line", 2),
        (b"\xff\n", "invalid_json_line", 1),
        (b"[1]\n", "invalid_json_line", 1),
        (jsonl([GOOD, GOOD]), "duplicate_custom_id", 2),
        (jsonl([{**GOOD, "custom_id": 3}]), "invalid_custom_id", 1),
        (jsonl([{**GOOD, "custom_id": "x" * 513}]), "invalid_custom_id", 1),
        (jsonl([{**GOOD, "method": "GET"}]), "invalid_method", 1),
        (jsonl([{**GOOD, "url": "/v1/embeddings"}]), "mismatched_endpoint", 1),
        (jsonl([{**GOOD, "body": []}]), "invalid_request", 1),
        (jsonl([row(0, messages=[], stream=True)]), "invalid_request", 1),
        (b"[" * 100_000 + b"\n", "invalid_json_line", 1),
    ],
)
async def test_an_input_that_is_no_batch_fails_with_its_places(
    tmp_path: Path, content: bytes, code: str, line: int | None
) -> None:
    async with journaled_server(tmp_path) as http:
        client = client_of(http)
        if not content.strip():
            with pytest.raises(openai.BadRequestError, match="empty"):
                await begun(client, content)
            return
        batch = await ended(client, (await begun(client, content)).id)
        assert batch.status == "failed"
        assert batch.errors is not None
        assert batch.errors.data is not None
        assert (batch.errors.data[0].code, batch.errors.data[0].line) == (code, line)
        assert (batch.output_file_id, batch.error_file_id) == (None, None)


async def test_cancelling_keeps_what_is_answered(tmp_path: Path) -> None:
    gate = Gate()
    fake = models(gate.saying("Hel", "lo.", after=1))
    async with journaled_server(tmp_path, fake) as http:
        client = client_of(http)
        batch_id = (await begun(client, jsonl([row(0), row(1)]))).id
        async with asyncio.timeout(60):
            await gate.reached.wait()
        assert (await client.batches.cancel(batch_id)).status == "cancelling"
        batch = await ended(client, batch_id)
        assert batch.status == "cancelled"
        errors = await rows_of(client, batch.error_file_id)
        assert [each["error"]["code"] for each in errors] == ["batch_cancelled"] * 2
        assert fake.held == 0
        with pytest.raises(openai.ConflictError):
            await client.batches.cancel(batch_id)


async def test_lines_run_on_while_other_batches_come_and_are_cancelled(tmp_path: Path) -> None:
    gate = Gate()
    fake = models(gate.saying("Hel", "lo.", after=1))
    async with journaled_server(tmp_path, fake) as http:
        client = client_of(http)
        first = await begun(client, jsonl([row(0)]))
        async with asyncio.timeout(60):
            await gate.reached.wait()
        faulty, second = await begun(client, b"{\n"), await begun(client, jsonl([row(1)]))
        assert (await ended(client, faulty.id)).status == "failed"
        await client.batches.cancel(second.id)
        assert (await ended(client, second.id)).status == "cancelled"
        assert (await client.batches.retrieve(first.id)).status == "in_progress"
        gate.opened.set()
        assert (await ended(client, first.id)).status == "completed"
        assert len(fake.clients[0].requests) == 1


async def test_files_and_batches_are_their_owners(tmp_path: Path) -> None:
    async with journaled_server(tmp_path, models(echo()), api_keys=(KEY, "sk-two")) as http:
        client, other = client_of(http), client_of(http, "sk-two")
        batch = await ended(client, (await begun(client, jsonl([row(0)]))).id)
        assert batch.output_file_id is not None
        assert [each.id for each in (await client.batches.list()).data] == [batch.id]
        assert len((await client.files.list()).data) == 2
        assert (await other.batches.list()).data == []
        assert (await other.files.list()).data == []
        for refused in (
            other.batches.retrieve(batch.id),
            other.batches.cancel(batch.id),
            other.files.content(batch.output_file_id),
            other.files.retrieve(batch.output_file_id),
            other.files.delete(batch.output_file_id),
            other.batches.create(input_file_id=batch.input_file_id, endpoint=CHAT, completion_window="24h"),
        ):
            with pytest.raises(openai.NotFoundError):
                await refused
        assert (await client.files.delete(batch.output_file_id)).deleted
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(batch.output_file_id)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "assistants"}, "purpose"),
        ({"purpose": "batch", "expires_after[seconds]": "5"}, "expires_after[seconds]"),
        ({"purpose": "batch", "more": "x"}, "more"),
        ({}, "purpose"),
    ],
)
async def test_an_upload_of_another_kind_is_refused(tmp_path: Path, fields: Any, param: str) -> None:
    async with journaled_server(tmp_path) as http:
        refused = await http.post("/v1/files", data=fields, files={"file": ("a.jsonl", b"{}")})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("window", ["", "24", "0h", "31d", "h", "24h "])
async def test_a_window_of_no_length_is_refused(tmp_path: Path, window: str) -> None:
    async with journaled_server(tmp_path) as http:
        file = await client_of(http).files.create(file=("a", jsonl([GOOD])), purpose="batch")
        body = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": window}
        refused = await http.post("/v1/batches", json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "completion_window")


async def test_a_batch_waits_for_its_hours(tmp_path: Path) -> None:
    closed = "03:00-03:01" if not DailyHours.parse("03:00-03:01").has(_now()) else "04:00-04:01"
    async with journaled_server(tmp_path, models(echo()), batch_hours=closed) as http:
        client = client_of(http)
        batch_id = (await begun(client, jsonl([row(0)]))).id
        async with asyncio.timeout(60):
            while not (found := (await http.get(f"/v1/batches/{batch_id}")).json())["paused"]:
                await asyncio.sleep(0.01)
        assert closed in found["paused"]
        assert found["request_counts"]["completed"] == 0
    async with journaled_server(tmp_path, models(echo())) as http:
        assert (await ended(client_of(http), batch_id)).status == "completed"


async def test_a_line_whose_worker_ends_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jan_serve.journal.batch_runner._LONGEST_WAIT_S", 0.0)
    tries = 0

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise EngineCrashed("It ended.")
        async for event in echo()(request):
            yield event

    async with journaled_server(tmp_path, models(script)) as http:
        client = client_of(http)
        batch = await ended(client, (await begun(client, jsonl([row(0)]))).id)
        assert len(await rows_of(client, batch.output_file_id)) == 1


async def test_lines_run_in_the_background(tmp_path: Path) -> None:
    from jan_serve.core.caller import cache_salt, client, in_background

    seen: list[tuple[bool, str]] = []

    async def script(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        seen.append((in_background.get(), client.get()))
        assert cache_salt.get() == request.cache_salt
        async for event in echo()(request):
            yield event

    async with journaled_server(tmp_path, models(script)) as http:
        openai_client = client_of(http)
        await ended(openai_client, (await begun(openai_client, jsonl([row(0)]))).id)
        await http.post(CHAT, json=GOOD["body"])
    assert [each for each, _ in seen] == [True, False]
    assert seen[0][1] != seen[1][1]


async def test_lists_have_pages_and_count_only_what_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jan_serve.journal import batches

    counted: list[str] = []
    count = vars(batches)["_counted"]

    def noted(db: Any, batch: batches.Batch) -> batches.Batch:
        counted.append(batch.id)
        return count(db, batch)

    closed = "03:00-03:01" if not DailyHours.parse("03:00-03:01").has(_now()) else "04:00-04:01"
    async with journaled_server(tmp_path, models(echo()), batch_hours=closed) as http:
        client = client_of(http)
        begun_ids = [(await begun(client, jsonl([row(0)]))).id for _ in range(3)][::-1]
        monkeypatch.setattr("jan_serve.journal.batches._counted", noted)
        for path, ids in (
            ("/v1/batches", begun_ids),
            ("/v1/files", [file.id for file in (await client.files.list()).data]),
        ):
            first = (await http.get(path, params={"limit": 1})).json()
            assert ([each["id"] for each in first["data"]], first["has_more"]) == (ids[:1], True)
            rest = (await http.get(path, params={"after": first["last_id"]})).json()
            assert ([each["id"] for each in rest["data"]], rest["has_more"]) == (ids[1:], False)
        assert counted == begun_ids
        up = (await http.get("/v1/files", params={"order": "asc", "purpose": "batch"})).json()["data"]
        assert [each["id"] for each in up] == ids[::-1]
        assert (await http.get("/v1/files", params={"purpose": "other"})).json()["data"] == []
        assert {each["expires_at"] - each["created_at"] for each in up} == {30 * 86_400}


async def test_a_batch_that_ends_while_it_is_cancelled_is_said_to_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = BatchTable.change

    async def late(table: BatchTable, batch: StoredBatch) -> bool:
        await ended(client, batch.id)
        return await change(table, batch)

    async with journaled_server(tmp_path, models(echo())) as http:
        client = client_of(http)
        batch_id = (await begun(client, jsonl([row(0)]))).id
        monkeypatch.setattr(BatchTable, "change", late)
        with pytest.raises(openai.ConflictError, match="completed already"):
            await client.batches.cancel(batch_id)


def _now() -> Any:
    from datetime import datetime

    return datetime.now().astimezone().time()
