"""Streams of chats that a client takes up again with Last-Event-ID."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import httpx
import msgspec
import pytest

from jan_serve.dialects.openai.dialect import openai_dialect
from jan_serve.dialects.shared.resumable import ResumableStreams
from tests.support.engine.fake_client import FakeClient, FakeModels, Script, fake_facts, saying
from tests.support.servers.fronts import http_client, live_server
from tests.support.servers.journaled import Gate

pytestmark = pytest.mark.anyio

PATH: Final = "/v1/chat/completions"
BODY: Final[dict[str, Any]] = {"stream": True, "messages": [{"role": "user", "content": "Hi."}]}
TEMPLATE: Final = (
    "{% if tools %}<tools><tool_call>{% endif %}{% for m in messages %}{{ m.content or '' }}{% endfor %}"
)
PIECES: Final = (
    "Let me ",
    "see.\n",
    '<tool_call>\n{"name": "f", "argu',
    'ments": {"a": 1}}\n</tool_call>',
)
TOOL: Final = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def models(script: Script) -> FakeModels:
    return FakeModels(FakeClient(script=script, facts=fake_facts(chat_templates={"default": TEMPLATE})))


def events_of(text: str) -> list[tuple[str, Any]]:
    """Ids and data, without the mark at the end."""
    found: list[tuple[str, Any]] = []
    for block in text.removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]:
        data, event_id = block.split("\n")
        found.append((event_id.removeprefix("id: "), json.loads(data.removeprefix("data: "))))
    return found


def application(found: FakeModels, **settings: Any) -> Any:
    return http_client(found, dialects=(openai_dialect,), fresh=True, **settings)


async def test_a_stream_goes_on_behind_each_of_its_events() -> None:
    body = BODY | {"tools": [TOOL], "n": 2, "stream_options": {"include_usage": True}}
    async with application(models(saying(*PIECES))) as client:
        whole = events_of((await client.post(PATH, json=body)).text)
        assert len({event_id for event_id, _ in whole}) == len(whole) > 8
        for number, (event_id, _) in enumerate(whole):
            again = await client.post(PATH, json=body, headers={"Last-Event-ID": event_id})
            assert events_of(again.text) == whole[number + 1 :]
            assert again.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("cut", range(len(PIECES)))
async def test_an_answer_goes_on_from_its_last_token_after_the_line_broke(cut: int) -> None:
    body = BODY | {"tools": [TOOL]}
    async with application(models(saying(*PIECES))) as client:
        whole = [data for _, data in events_of((await client.post(PATH, json=body)).text)]
    gate = Gate()
    found = models(gate.saying(*PIECES, after=cut))
    async with (
        live_server(found) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        text = ""
        async with client.stream("POST", PATH, json=body) as answer:
            async for piece in answer.aiter_text():
                text += piece
                if gate.reached.is_set() or text.count("\n\n") > cut:
                    break
        async with asyncio.timeout(60):
            while found.held:
                await asyncio.sleep(0.01)
        assert found.clients[0].closed_early, "the engine stops while there is no client"
        found.clients[0].script = saying(*PIECES)
        before = events_of(text[: text.rindex("\n\n") + 2])
        rest = await client.post(PATH, json=body, headers={"last-event-id": before[-1][0]})
    after = events_of(rest.text)
    joined = [data for _, data in (*before, *after)]
    assert len({data["id"] for data in joined}) == 1
    assert _content(joined) == _content(whole)
    first, second = found.clients[0].requests
    assert first.sampling.seed == second.sampling.seed is not None


def _content(chunks: list[Any]) -> tuple[str, str, list[str]]:
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    calls = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    return (
        "".join(delta.get("content") or "" for delta in deltas),
        "".join(call.get("name", "") + call["arguments"] for call in calls),
        [reason for reason in reasons if reason],
    )


async def test_what_cannot_go_on_is_refused_with_the_reason() -> None:
    keys = {"api_keys": ("one", "two")}
    own, other = {"authorization": "Bearer one"}, {"authorization": "Bearer two"}
    async with application(models(saying("Hel", "lo.")), **keys) as client:
        whole = events_of((await client.post(PATH, json=BODY, headers=own)).text)
        last = whole[0][0]
        cases: list[tuple[dict[str, str], dict[str, Any], str]] = [
            (other | {"last-event-id": last}, BODY, "none of this server"),
            (own | {"last-event-id": last}, BODY | {"max_tokens": 3}, "another request"),
            *(
                (own | {"last-event-id": text}, BODY, "none of this server")
                for text in ("x", "x:1", last + "x", ":")
            ),
        ]
        for headers, body, reason in cases:
            refused = await client.post(PATH, json=body, headers=headers)
            assert refused.status_code == 400
            assert reason in refused.json()["error"]["message"]
        assert (await client.post(PATH, json=BODY | {"stream": False}, headers=own)).status_code == 200


async def test_no_answer_is_written_by_two_models() -> None:
    found = models(saying("Hel", "lo."))
    async with application(found) as client:
        first = events_of((await client.post(PATH, json=BODY)).text)[0][0]
        found.clients[0].facts = msgspec.structs.replace(found.clients[0].facts, weights="e" * 32)
        refused = await client.post(PATH, json=BODY, headers={"last-event-id": first})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_state")
        assert "not the one that began the answer" in refused.json()["error"]["message"]
    assert len(found.clients[0].requests) == 1


async def test_without_the_setting_events_have_no_id() -> None:
    async with application(models(saying("Hello.")), resume_s=0) as client:
        assert "id: " not in (await client.post(PATH, json=BODY)).text
        refused = await client.post(PATH, json=BODY, headers={"last-event-id": "x:1"})
        assert (refused.status_code, "resume_s" in refused.json()["error"]["message"]) == (400, True)


async def test_an_answer_is_forgotten_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(ResumableStreams.__init__, "__defaults__", (lambda: now,))
    async with application(models(saying("Hello."))) as client:
        last = events_of((await client.post(PATH, json=BODY)).text)[0][0]
        now = 59.0
        assert (await client.post(PATH, json=BODY, headers={"last-event-id": last})).status_code == 200
        now = 59.0 + 61.0
        assert (await client.post(PATH, json=BODY, headers={"last-event-id": last})).status_code == 400


async def test_one_connection_at_a_time_has_an_answer() -> None:
    gate = Gate()
    found = models(gate.saying("Hel", "lo.", after=1))
    async with (
        live_server(found) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        client.stream("POST", PATH, json=BODY) as first,
    ):
        lines = first.aiter_lines()
        text = ""
        while "Hel" not in text:
            text += await anext(lines) + "\n"
        event_id = (await anext(lines)).removeprefix("id: ")
        await gate.reached.wait()
        found.clients[0].script = saying("Hel", "lo.")
        second = await client.post(PATH, json=BODY, headers={"last-event-id": event_id})
        assert _content([data for _, data in events_of(second.text)])[0] == "lo."
        gate.opened.set()
        rest = [line async for line in lines]
    assert any("Another connection" in line for line in rest)
    assert "data: [DONE]" not in rest


async def test_the_key_that_has_most_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.dialects.shared.resumable._MAX_BYTES", 8_000)
    own, other = {"authorization": "Bearer one"}, {"authorization": "Bearer two"}
    async with application(models(saying("x" * 400)), api_keys=("one", "two")) as client:
        last = events_of((await client.post(PATH, json=BODY, headers=own)).text)[0][0]
        theirs = [
            events_of((await client.post(PATH, json=BODY, headers=other)).text)[0][0] for _ in range(40)
        ]
        kept = await client.post(PATH, json=BODY, headers=own | {"last-event-id": last})
        assert kept.status_code == 200
        for event_id, status in ((theirs[0], 400), (theirs[-1], 200)):
            again = await client.post(PATH, json=BODY, headers=other | {"last-event-id": event_id})
            assert again.status_code == status
