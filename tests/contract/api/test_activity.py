"""What `/extras/requests` and the routes beside it say of requests whose engine is scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from jan_serve.api.activity.recent import KeptPrompts
from jan_serve.core.events import EngineWork
from jan_serve.core.trace import KeptPrompt, RequestTrace
from jan_serve.ipc.messages import EngineEvent, EngineRequest, RequestCompleted
from tests.support.engine.fake_client import FakeClient, FakeModels, Script, saying
from tests.support.servers.fronts import http_client, refused
from tests.support.servers.journaled import Gate, journaled_server

pytestmark = pytest.mark.anyio


def changed(script: Script, **fields: Any) -> Script:
    """The script, with these fields of its end."""

    async def events(request: EngineRequest) -> AsyncIterator[EngineEvent]:
        async for event in script(request):
            is_last = isinstance(event, RequestCompleted)
            yield msgspec.structs.replace(event, **fields) if is_last else event

    return events


async def test_why_says_what_the_engine_did_for_the_request_over_all_its_prompts() -> None:
    work = EngineWork(cached_in="ram", drafted=5, accepted=4, forced=3, others_s=0.5)
    models = FakeModels(FakeClient(script=changed(saying("Hi"), work=work)))
    async with http_client(models) as client:
        for name, prompt, count in (("one", "a", 1), ("two", ["a", "b"], 2)):
            headers = {"x-request-id": name}
            answer = await client.post("/v1/completions", json={"prompt": prompt}, headers=headers)
            assert answer.status_code == 200
            why = (await client.get(f"/extras/why/{name}")).json()
            assert (why["cached_in"], why["others_s"]) == ("ram", 0.5)
            counted = [why[f"{kind}_tokens"] for kind in ("drafted", "accepted", "forced")]
            assert counted == [5 * count, 4 * count, 3 * count]


CHAT = {"messages": [{"role": "user", "content": "the secret of the prompt"}]}


async def prompt_of(client: httpx.AsyncClient, name: str, **headers: str) -> httpx.Response:
    return await client.get(f"/extras/requests/{name}/prompt", headers=headers)


async def asked(client: httpx.AsyncClient, name: str, path: str, body: object, **headers: str) -> None:
    answer = await client.post(path, json=body, headers={"x-request-id": name, **headers})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "body", "shown", "cached"),
    [
        ("/v1/completions", {"prompt": "Hällo world"}, "Hällo world", 6),
        ("/v1/completions", {"prompt": list(b"Hello world")}, "Hello world", 8),
        ("/v1/completions", {"prompt": ["Hello", "world"]}, ["Hello", "world"], None),
    ],
)
async def test_a_kept_prompt_is_shown_with_the_end_of_its_cached_part(
    path: str, body: object, shown: str | list[str], cached: int | None
) -> None:
    """Tokens are bytes, and a text has BOS before them."""
    models = FakeModels(FakeClient(script=changed(saying("Hi"), cached_tokens=8)))
    async with http_client(models, keep_prompts=3) as client:
        await asked(client, "mine", path, body)
        found = (await prompt_of(client, "mine")).json()
        texts = [shown] if isinstance(shown, str) else shown
        assert found["prompts"] == [{"text": text, "cached_characters": cached} for text in texts]
        assert (found["model"], found["cached_tokens"]) == ("fake", 8 * len(texts))
        models.state = "stopping"
        found = (await prompt_of(client, "mine")).json()
        assert [each["cached_characters"] for each in found["prompts"]] == [None] * len(texts)
        assert models.held == 0


async def test_a_rendered_chat_is_kept_and_neither_logged_nor_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    async with http_client(keep_prompts=2, fresh=True) as client:
        for name in ("one", "two", "three"):
            await asked(client, name, "/v1/chat/completions", CHAT)
        (prompt,) = (await prompt_of(client, "three")).json()["prompts"]
        assert "<|im_start|>user\nthe secret of the prompt<|im_end|>" in prompt["text"]
        refused(await prompt_of(client, "one"), 404, "prompt_not_kept")
        assert (await prompt_of(client, "two")).status_code == 200
        for path in ("/extras/requests", "/extras/why/three", "/metrics"):
            assert "the secret" not in (await client.get(path)).text
    assert "the secret" not in caplog.text


async def test_no_prompt_is_kept_by_default() -> None:
    async with http_client() as client:
        await asked(client, "mine", "/v1/chat/completions", CHAT)
        refused(await prompt_of(client, "mine"), 404, "prompt_not_kept")
        refused(await prompt_of(client, "other"), 404, "request_not_found")


async def test_a_prompt_is_for_the_key_of_its_request_only() -> None:
    async with http_client(keep_prompts=2, api_keys=("one", "two")) as client:
        await asked(client, "mine", "/v1/chat/completions", CHAT, authorization="Bearer one")
        refused(await prompt_of(client, "mine", authorization="Bearer two"), 404, "request_not_found")
        assert (await prompt_of(client, "mine", authorization="Bearer one")).status_code == 200
        assert (await prompt_of(client, "mine")).status_code == 401


def test_prompts_leave_over_their_number_and_over_their_bytes() -> None:
    kept = KeptPrompts(3, max_bytes=10_000)
    traces = [RequestTrace() for _ in range(6)]
    for trace, text in zip(traces, ("a", "b", "c", "d", "e" * 9_000, "f" * 20_000), strict=True):
        trace.prompts = [KeptPrompt((text,), add_special=True, parse_special=True)]
        kept.end(trace)
    assert [each.prompts is not None for each in traces[:4]] == [False] * 4
    assert [each.prompts is not None for each in traces[4:]] == [False, False]


async def totals_of(client: httpx.AsyncClient, **headers: str) -> list[tuple[Any, ...]]:
    rows = (await client.get("/extras/totals", headers=headers)).json()["data"]
    names = ("model", "program", "requests", "prompt_tokens", "cached_tokens", "completion_tokens")
    return [tuple(row[name] for name in names) for row in rows]


async def test_totals_of_each_key_outlive_the_server(tmp_path: Path) -> None:
    one, two = {"authorization": "Bearer one"}, {"authorization": "Bearer two"}
    body, path = {"prompt": "Hello"}, "/v1/completions"
    models = FakeModels(FakeClient(script=changed(saying("Hi"), cached_tokens=3)))
    for count in (1, 2):
        async with journaled_server(tmp_path, models, api_keys=("one", "two")) as client:
            await asked(client, "a", path, body, **one, **{"user-agent": "agent/1 (x)"})
            await asked(client, "b", path, body, **two, **{"user-agent": "other/1"})
            assert await totals_of(client, **one) == [
                ("fake", "agent/1", count, 5 * count, 3 * count, 2 * count)
            ]


@pytest.mark.parametrize("end", ["left", "whole", "cancelled"])
async def test_an_answer_in_the_background_counts_once_it_is_written(tmp_path: Path, end: str) -> None:
    """Left: the client of a stream goes before the second piece."""
    gate, path = Gate(), "/v1/responses"
    models = FakeModels(FakeClient(script=gate.saying("Hel", "lo.", after=1)))
    async with journaled_server(tmp_path, models) as client:
        headers = {"x-request-id": "one", "user-agent": "page/1"}
        body = {"input": "Hello", "background": True, "stream": end == "left"}
        asking = asyncio.create_task(client.post(path, json=body, headers=headers))
        await gate.reached.wait()
        if end == "left":
            asking.cancel()
        (answer,) = await asyncio.gather(asking, return_exceptions=True)
        assert (await client.get("/extras/why/one")).json()["state"] == "writing"
        assert await totals_of(client) == []
        if isinstance(answer, httpx.Response) and end == "cancelled":
            await client.post(f"{path}/{answer.json()['id']}/cancel")
        gate.opened.set()
        while (await client.get("/extras/why/one")).json()["state"] == "writing":
            await asyncio.sleep(0)
        assert (await client.get("/extras/why/one")).json()["state"] == (
            "cancelled" if end == "cancelled" else "done"
        )
        (row,) = await totals_of(client)
        assert (row[1:3], row[5]) == (("page/1", 1), 1 if end == "cancelled" else 2)
        cancelled = f"jan_serve_cancelled_total {int(end == 'cancelled')}"
        assert cancelled in (await client.get("/metrics")).text


async def test_totals_that_the_disk_does_not_take_wait(tmp_path: Path) -> None:
    (tmp_path / "totals").write_text("in the way")
    async with http_client(fresh=True, data_dir=tmp_path) as client:
        for count in (1, 2):
            await asked(client, "a", "/v1/completions", {"prompt": "Hello"}, **{"user-agent": "agent/1"})
            assert await totals_of(client) == [("fake", "agent/1", count, 5 * count, 0, 6 * count)]
        (tmp_path / "totals").unlink()
        assert [row[2] for row in await totals_of(client)] == [2]
    assert list((tmp_path / "totals").glob("*.json"))
