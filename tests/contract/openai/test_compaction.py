"""`POST /v1/responses/compact`: a summary that this server reads again, and that others leave out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest
from openai.types.responses import ResponseCompactionItem, ResponseUsage

from jan_serve.ipc.messages import EngineEvent, EngineRequest
from tests.support.engine.fake_client import FakeClient, FakeModels, Script, fake_facts, prompt_text, saying
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

PATH: Final = "/v1/responses/compact"
TEMPLATE: Final = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools><tool_call>{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}{{ c.function.arguments | tojson }}</tool_call>"
    "{% endfor %}{% endfor %}"
)
TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "name": "read",
    "parameters": {"type": "object", "properties": {}},
}
SESSION: Final[list[dict[str, Any]]] = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "Mend the test."},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "text of the file"},
    {"role": "assistant", "content": "It is mended."},
    {"role": "user", "content": [{"type": "input_text", "text": "And the other?"}]},
]


class Recorded:
    """A model that remembers its prompts."""

    def __init__(self, *pieces: str) -> None:
        self.prompts: list[str] = []
        self._script: Script = saying(*pieces)

    async def script(self, request: EngineRequest) -> AsyncIterator[EngineEvent]:
        self.prompts.append(prompt_text(request))
        async for event in self._script(request):
            yield event

    def http(self) -> Any:
        facts = fake_facts(n_ctx=100_000, chat_templates={"default": TEMPLATE})
        return http_client(FakeModels(FakeClient(name="m", script=self.script, facts=facts)))


async def compacted(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post(PATH, json={"model": "m"} | body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    ResponseCompactionItem.model_validate(found["output"][-1])
    ResponseUsage.model_validate(found["usage"])
    return found


async def test_the_messages_stay_and_the_summary_goes_on_as_input() -> None:
    model = Recorded(" The test ", "is mended. ")
    async with model.http() as client:
        found = await compacted(client, input=SESSION, tools=[TOOL], instructions="You are an agent.")
        begun = await client.post(
            "/v1/responses",
            json={"model": "m", "input": [*found["output"], {"role": "user", "content": "Go on."}]},
        )
    assert [(item["type"], item.get("role")) for item in found["output"]] == [
        ("message", "developer"),
        ("message", "user"),
        ("message", "user"),
        ("compaction", None),
    ]
    assert found["object"] == "response.compaction" and found["usage"]["input_tokens"] > 0
    assert begun.status_code == 200 and "x-jan-serve-warning" not in begun.headers
    asked, continued = model.prompts
    # The whole conversation precedes the task, with its tools: the prefix that the session has in the cache.
    assert asked.startswith("<tools>[{") and "<tool_call>[system]You are an agent." in asked
    assert "text of the file" in asked and "summary" in asked.rpartition("And the other?")[2]
    assert continued.endswith("The test is mended.[user]Go on.")
    assert continued.startswith("[system]Be brief.[user]Mend the test.[user]And the other?[user]Summary")


async def test_a_second_compaction_has_the_first_one_in_its_prompt() -> None:
    model = Recorded("First summary.")
    async with model.http() as client:
        found = await compacted(client, input=SESSION)
        again = await compacted(client, input=[*found["output"], {"role": "assistant", "content": "More."}])
    assert "First summary." in model.prompts[1]
    assert [item["type"] for item in again["output"]] == ["message"] * 3 + ["compaction"]


async def test_a_kept_answer_is_compacted_by_its_id() -> None:
    model = Recorded("Said.")
    async with model.http() as client:
        first = (await client.post("/v1/responses", json={"model": "m", "input": "Hi"})).json()
        found = await compacted(client, previous_response_id=first["id"], input=None)
        missing = await client.post(PATH, json={"model": "m", "previous_response_id": "resp_no"})
    assert [item["type"] for item in found["output"]] == ["message", "compaction"]
    assert "Said." in model.prompts[1]
    assert (missing.status_code, missing.json()["error"]["code"]) == (400, "previous_response_not_found")


async def test_what_another_server_made_is_left_out_with_a_warning() -> None:
    foreign = {"type": "compaction", "encrypted_content": "gAAAA"}
    async with Recorded("a").http() as client:
        answer = await client.post("/v1/responses", json={"model": "m", "input": [foreign, SESSION[1]]})
    assert answer.status_code == 200
    assert "input[0]: another server made this compaction" in answer.headers["x-jan-serve-warning"]


async def test_without_a_conversation_there_is_nothing_to_compact() -> None:
    async with Recorded("a").http() as client:
        bodies: list[dict[str, Any]] = [{}, {"input": []}, {"instructions": "Be brief."}]
        for body in bodies:
            answer = await client.post(PATH, json={"model": "m", **body})
            assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")


async def test_no_summary_is_an_error_and_no_empty_conversation() -> None:
    async with Recorded("  ").http() as client:
        answer = await client.post(PATH, json={"model": "m", "input": SESSION})
    assert answer.status_code == 500 and "no summary" in answer.json()["error"]["message"]
