"""/v1/responses over fake models: bodies, streams cut at every point, rejections, and stored answers."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import httpx
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from jan_serve.dialects.openai.dialect import openai_dialect
from jan_serve.errors import ContextLengthExceeded, EngineCrashed, Overloaded
from tests.support.clients.response_events import Event, events_of, replayed
from tests.support.engine.fake_client import (
    FakeClient,
    FakeModels,
    Script,
    failing,
    fake_facts,
    prompt_text,
    saying,
)
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

PATH: Final = "/v1/responses"
FUNCTION: Final[dict[str, Any]] = {
    "type": "function", "name": "get_weather", "description": "Weather.", "strict": None,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}  # fmt: skip
CUSTOM: Final[dict[str, Any]] = {"type": "custom", "name": "patch", "description": None, "format": None}
SPACE: Final[dict[str, Any]] = {
    "type": "namespace",
    "name": "mcp__a",
    "description": "A.",
    "tools": [FUNCTION],
}

TEMPLATE: Final = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools><tool_call>{% endif %}"
    "{% for m in messages %}[{{ m.role }}]"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}</tool_call>{% endfor %}\n{% endfor %}[assistant]"
)
ANSWER: Final = (
    "<think>\nHmm, é🙂.\n</think>\n\nLet me see.\n"
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Tromsø"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "mcp__a__get_weather", "arguments": {}}\n</tool_call>\n'
    '<tool_call>\n{"name": "patch", "arguments": {"input": "*** a\\n+\\"b\\" \\u00e9"}}\n</tool_call>'
)


def models(script: Script) -> FakeModels:
    facts = fake_facts(n_ctx=100_000, chat_templates={"default": TEMPLATE})
    return FakeModels(FakeClient(script=script, facts=facts))


def application(found: FakeModels, **settings: Any) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    return http_client(found, dialects=(openai_dialect,), **settings)


async def post(script: Script | None = None, **body: Any) -> tuple[int, Event]:
    async with application(models(script or saying("Hel", "lo."))) as client:
        response = await client.post(PATH, json={"input": "Hi", **body})
    return response.status_code, response.json()


async def streamed_by(client: httpx.AsyncClient, **body: Any) -> list[Event]:
    response = await client.post(PATH, json={"input": "Hi", **body, "stream": True})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/event-stream")
    assert "[DONE]" not in response.text
    return events_of(response.text)


async def stream(script: Script, **body: Any) -> list[Event]:
    async with application(models(script)) as client:
        return await streamed_by(client, **body)


def shape(response: Event) -> list[Any]:
    """The content of an answer, without ids."""
    return [(item["type"], item["status"], _said(item)) for item in response["output"]]


def _said(item: Event) -> Any:
    match item["type"]:
        case "message":
            return item["content"][0]["text"]
        case "reasoning":
            return [part["text"] for part in item["summary"]], [part["text"] for part in item["content"]]
        case "function_call":
            return item.get("namespace"), item["name"], item["arguments"]
        case kind:
            assert kind == "custom_tool_call"
            return item["name"], item["input"]


WHOLE: Final[list[Any]] = [
    ("reasoning", "completed", ([], ["Hmm, é🙂."])),
    ("message", "completed", "Let me see."),
    ("function_call", "completed", (None, "get_weather", '{"city": "Tromsø"}')),
    ("function_call", "completed", ("mcp__a", "get_weather", "{}")),
    ("custom_tool_call", "completed", ("patch", '*** a\n+"b" é')),
]


async def test_the_whole_answer_field_for_field() -> None:
    status, body = await post(
        model="m", instructions="Be kind.", metadata={"a": "b"}, temperature=0, max_output_tokens=9, user="u"
    )
    assert status == 200
    assert body.pop("id").startswith("resp_")
    assert body.pop("created_at") <= body.pop("completed_at")
    assert body["output"][0].pop("id").startswith("msg_")
    assert body.pop("timings")["predicted_n"] == 6
    part: Event = {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}
    assert body == {
        "object": "response", "status": "completed", "error": None, "incomplete_details": None,
        "instructions": "Be kind.", "model": "m",
        "output": [{"type": "message", "status": "completed", "role": "assistant", "content": [part]}],
        "usage": {
            "input_tokens": 35, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 35},
            "output_tokens": 6, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 41,
        },
        "previous_response_id": None, "store": True, "background": False, "max_output_tokens": 9,
        "max_tool_calls": None, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "text": {"format": {"type": "text"}}, "reasoning": {"effort": None, "summary": None},
        "temperature": 0, "top_p": 0.95, "presence_penalty": 0, "frequency_penalty": 0, "top_logprobs": 0,
        "truncation": "disabled", "metadata": {"a": "b"}, "service_tier": "default", "prompt_cache_key": None,
        "safety_identifier": None, "user": "u",
    }  # fmt: skip


async def test_answers_and_events_fit_openais_own_types() -> None:
    fields: dict[str, Any] = {
        "tools": [FUNCTION, CUSTOM, SPACE, {"type": "web_search"}], "top_logprobs": 1,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}, "verbosity": "low"},
        "reasoning": {"effort": "low"}, "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [FUNCTION]},
    }  # fmt: skip
    _, body = await post(saying(ANSWER), **fields)
    assert TypeAdapter(Response).validate_python(body).id == body["id"]
    known: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for summary in (None, "auto"):
        for event in await stream(saying(ANSWER), **fields | {"reasoning": {"summary": summary}}):
            known.validate_python(event)


@pytest.mark.parametrize("given", [{}, {"description": "d"}, {"strict": True}], ids=str)
async def test_a_schema_of_the_answer_is_shown_with_all_its_members(given: dict[str, Any]) -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, **given}
    expected = {"description": None, "strict": False, **form}
    _, body = await post(saying("{}"), text={"format": form})
    assert body["text"] == {"format": expected}
    events = await stream(saying("{}"), text={"format": form})
    assert [event["response"]["text"] for event in events if "response" in event] == [
        {"format": expected}
    ] * 3


async def test_streams_are_the_same_however_the_text_is_cut() -> None:
    tools = [FUNCTION, SPACE, CUSTOM]
    found = models(saying(*ANSWER))
    async with application(found) as client:
        assert shape((await client.post(PATH, json={"input": "Hi", "tools": tools})).json()) == WHOLE
        assert shape(replayed(await streamed_by(client, tools=tools))) == WHOLE
        for cut in range(len(ANSWER) + 1):
            found.clients[0].script = saying(ANSWER[:cut], ANSWER[cut:])
            assert shape(replayed(await streamed_by(client, tools=tools))) == WHOLE


CUT_SHORT: Final[list[tuple[str, Any]]] = [
    ("<think>\nHm", ("reasoning", "incomplete", ([], ["Hm"]))),
    ("Hel", ("message", "incomplete", "Hel")),
    (ANSWER[: ANSWER.index("Troms")], ("function_call", "incomplete", (None, "get_weather", '{"city": "'))),
    (ANSWER[: ANSWER.index("+")], ("custom_tool_call", "incomplete", ("patch", "*** a\n"))),
]


@pytest.mark.parametrize(("text", "last"), CUT_SHORT)
async def test_an_answer_that_ran_out_of_tokens_is_incomplete(text: str, last: Any) -> None:
    tools = [FUNCTION, SPACE, CUSTOM]
    final = replayed(await stream(saying(*text, reason="length"), tools=tools, max_output_tokens=5))
    assert (final["status"], final["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert shape(final)[-1] == last
    assert final["completed_at"] is None
    assert final["usage"]["output_tokens"] == len(text)
    _, whole = await post(saying(*text, reason="length"), tools=tools)
    assert shape(whole) == shape(final)


async def test_an_answer_that_somebody_ended_is_incomplete_without_a_reason() -> None:
    _, body = await post(saying("Hel", reason="abort"))
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": None})


async def test_an_answer_without_text_has_no_items() -> None:
    assert replayed(await stream(saying()))["output"] == []


async def test_thoughts_go_where_they_are_asked_for() -> None:
    text = "<think>\nHm.\n</think>\n\nYes."
    wishes: list[tuple[dict[str, str], Any]] = [
        ({"summary": "auto"}, (["Hm."], [])),
        ({"generate_summary": "detailed"}, (["Hm."], [])),
        ({"summary": "none"}, ([], ["Hm."])),
    ]
    for reasoning, shown in wishes:
        final = replayed(await stream(saying(*text), reasoning=reasoning))
        assert shape(final)[0] == ("reasoning", "completed", shown)
        assert "encrypted_content" not in final["output"][0]
    final = replayed(await stream(saying(*text), include=["reasoning.encrypted_content"]))
    thought: Event = {**final["output"][0], "summary": [], "content": []}
    found = models(saying("."))
    async with application(found) as client:
        items: list[Event] = [
            {"role": "user", "content": "a"},
            thought,
            {"role": "assistant", "content": "b"},
        ]
        await client.post(PATH, json={"input": [*items, {"role": "user", "content": "c"}]})
    assert "[assistant]<think>Hm.</think>b" in prompt_text(found.clients[0].requests[0])


async def test_logprobs_are_of_every_token() -> None:
    final = replayed(await stream(saying("é", "x"), include=["message.output_text.logprobs"]))
    [part] = final["output"][0]["content"]
    assert bytes(byte for token in part["logprobs"] for byte in token["bytes"]) == "éx".encode()


async def test_a_conversation_goes_on_from_a_kept_answer() -> None:
    found = models(saying(ANSWER))
    async with application(found) as client:
        first = (
            await client.post(PATH, json={"input": "Hi", "instructions": "X.", "tools": [FUNCTION]})
        ).json()
        call = first["output"][2]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
        more = {"previous_response_id": first["id"], "input": [result], "stream": True, "tools": [FUNCTION]}
        second = events_of((await client.post(PATH, json=more)).text)[-1]["response"]
        assert second["previous_response_id"] == first["id"]
        kept = await client.get(f"{PATH}/{second['id']}")
        assert kept.json() == second
        prompts = [prompt_text(request) for request in found.clients[0].requests]
        sent = [
            {"role": "user", "content": "Hi"},
            *({"type": "item_reference", "id": item["id"]} for item in first["output"]),
            result,
        ]
        await client.post(PATH, json={"input": sent, "tools": [FUNCTION], "store": False})
        await client.post(
            PATH, json={"input": [sent[0], *first["output"], result], "tools": [FUNCTION], "store": False}
        )
        again = [prompt_text(request) for request in found.clients[0].requests[2:]]
        assert again == [prompts[1], prompts[1]]
    assert "[system]X." in prompts[0]
    assert "[system]" not in prompts[1]
    assert prompts[1].endswith(
        "[user]Hi[assistant]<think>Hmm, é🙂.</think>Let me see."
        '<tool_call>get_weather{"city": "Tromsø"}</tool_call>'
        "<tool_call>mcp__a__get_weather{}</tool_call>"
        '<tool_call>patch{"input": "*** a\\n+\\"b\\" é"}</tool_call>[tool]rain[assistant]'
    )


async def test_what_is_not_kept_is_not_found() -> None:
    async with application(models(saying("a"))) as client:
        for body in ({"store": False}, {"store": True}):
            answer = (await client.post(PATH, json={"input": "Hi", **body})).json()
            assert answer["store"] is body["store"]
            path = f"{PATH}/{answer['id']}"
            if body["store"]:
                assert (await client.delete(path)).json() == {
                    "id": answer["id"],
                    "object": "response",
                    "deleted": True,
                }
            for response in (await client.get(path), await client.delete(path)):
                assert response.status_code == 404
                assert response.json()["error"]["code"] == "not_found"
            refused = await client.post(PATH, json={"input": "Hi", "previous_response_id": answer["id"]})
            assert refused.status_code == 400
            error = refused.json()["error"]
            assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")
            item = {"type": "item_reference", "id": answer["output"][0]["id"]}
            assert (await client.post(PATH, json={"input": [item]})).status_code == 400


async def test_a_server_that_keeps_nothing() -> None:
    async with application(models(saying("a")), response_store_bytes=0) as client:
        answer = (await client.post(PATH, json={"input": "Hi"})).json()
        refused = await client.post(PATH, json={"input": "Hi", "previous_response_id": answer["id"]})
    assert "keeps no answers" in refused.json()["error"]["message"]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code", "param"),
    [
        (ContextLengthExceeded(600, 512), 400, "context_length_exceeded", "input"),
        (Overloaded("Full."), 429, "overloaded", None),
    ],
)
async def test_refusals_have_their_status_on_streams_too(
    streamed: bool, error: Exception, status: int, code: str, param: str | None
) -> None:
    found, body = await post(failing(error), stream=streamed)
    assert (found, body["error"]["param"]) == (status, param)
    assert body["error"]["code"] == code


async def test_a_stream_that_breaks_off_ends_as_failed() -> None:
    final = replayed(await stream(failing(EngineCrashed("It ended."), "Hel", "lo")))
    assert final["status"] == "failed"
    assert final["error"]["code"] == "server_error"
    assert shape(final) == [("message", "incomplete", "Hello")]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": {"format": {"type": "json_schema", "schema": {"type": 3}}}}, "text.format"),
        (
            {"tools": [{**FUNCTION, "strict": True, "parameters": {"type": "object", "$ref": "http://a/b"}}]},
            "tools",
        ),
        ({"text": {"format": {"type": "json_schema", "schema": 3}}}, "text.format"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
async def test_errors_name_the_fields_of_this_route(fields: dict[str, Any], param: str) -> None:
    status, body = await post(**fields)
    assert (status, body["error"]["param"]) == (400, param)


async def test_warning_headers_name_what_is_not_done_as_requested() -> None:
    async with application(models(saying("a"))) as client:
        for streamed in (False, True):
            body = {
                "input": "Hi",
                "tools": [{"type": "web_search"}, FUNCTION],
                "truncation": "auto",
                "stream": streamed,
            }
            response = await client.post(PATH, json=body)
            assert [header[:9] for header in response.headers.get_list("x-jan-serve-warning")] == [
                "tools[0]:", "truncatio",
            ]  # fmt: skip


async def test_input_tokens_are_those_of_the_prompt() -> None:
    found = models(saying("a"))
    body = {"input": "Hi", "tools": [FUNCTION]}
    async with application(found) as client:
        counted = (await client.post(f"{PATH}/input_tokens", json=body)).json()
        await client.post(PATH, json=body)
    prompt = prompt_text(found.clients[0].requests[0])
    assert counted == {"object": "response.input_tokens", "input_tokens": len(prompt.encode()) + 1}
    assert json.dumps(FUNCTION["parameters"])[:10] in prompt
