"""Routes that clients of llama-server, LMDeploy and OpenAI call beside those of generation."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts, saying
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

MESSAGES = [{"role": "user", "content": "Hi"}]
SAYING = saying("ab", "cd")


@pytest.mark.parametrize("path", ["/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"])
async def test_the_tokens_of_a_chat_are_counted(path: str) -> None:
    async with http_client(FakeModels(FakeClient())) as client:
        one = await client.post(path, json={"messages": MESSAGES})
        two = await client.post(path, json={"messages": MESSAGES * 2, "stream": True})
        same = await client.post("/v1/responses/input_tokens", json={"input": "Hi"})
        wrong = await client.post(path, json={"messages": 5})
    assert one.json() == {"object": "response.input_tokens", "input_tokens": same.json()["input_tokens"]}
    assert two.json()["input_tokens"] > one.json()["input_tokens"]
    assert wrong.status_code == 422


@pytest.mark.parametrize("prompt", ["Hi", [72, 105]])
async def test_a_completion_in_llama_servers_form(prompt: Any) -> None:
    client_of_model = FakeClient(script=SAYING)
    body = {"prompt": prompt, "n_predict": 9, "temperature": 0.1, "stop": ["x"]}
    async with http_client(FakeModels(client_of_model)) as client:
        whole = await client.post("/completion", json=body)
        stream = await client.post("/completion", json=body | {"stream": True})
    answer = whole.json()
    assert (answer["content"], answer["stop"], answer["stop_type"]) == ("abcd", True, "eos")
    assert answer["generation_settings"]["n_predict"] == 9
    pieces = [json.loads(line.removeprefix("data: ")) for line in stream.text.split("\n\n") if line]
    assert [piece["content"] for piece in pieces] == ["ab", "cd", ""]
    assert [piece["stop"] for piece in pieces] == [False, False, True]
    assert pieces[-1].keys() == answer.keys()


@pytest.mark.parametrize("path", ["/completion", "/infill"])
@pytest.mark.parametrize("name", ["n_predict", "max_tokens", "max_completion_tokens"])
async def test_the_limit_has_each_name_of_llama_server(path: str, name: str) -> None:
    roles = {role: fake_facts().special_tokens["bos"] for role in ("fim_pre", "fim_suf", "fim_mid")}
    seen = FakeClient(facts=fake_facts(special_tokens=roles), script=SAYING)
    async with http_client(FakeModels(seen)) as client:
        answer = await client.post(path, json={"prompt": "Hi", name: 9})
    assert [request.stopping.max_tokens for request in seen.requests] == [9]
    assert answer.headers.get_list("x-jan-serve-warning") == []


@pytest.mark.parametrize("path", ["/completion", "/infill"])
async def test_tokens_and_their_probabilities_in_llama_servers_form(path: str) -> None:
    roles = {role: fake_facts().special_tokens["bos"] for role in ("fim_pre", "fim_suf", "fim_mid")}
    seen = FakeClient(facts=fake_facts(special_tokens=roles), script=SAYING)
    body = {"prompt": "Hi", "input_prefix": "a", "ignore_eos": True}
    async with http_client(FakeModels(seen)) as client:
        plain = (await client.post(path, json=body)).json()
        shown = (await client.post(path, json=body | {"return_tokens": True})).json()
        scored = (await client.post(path, json=body | {"n_probs": 2})).json()
        stream = await client.post(path, json=body | {"n_probs": 2, "stream": True})
        refused = [await client.post(path, json=body | {"n_probs": n}) for n in (-1, 101)]
    assert [request.stopping.ignore_eos for request in seen.requests] == [True] * 4
    assert [request.logprobs for request in seen.requests] == [None, None, 2, 2]
    assert (plain["tokens"], shown["tokens"]) == ([], list(b"abcd"))
    assert not {"completion_probabilities"} & {*plain, *shown}
    first = {"id": 97, "token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": []}
    assert scored["completion_probabilities"][0] == first
    assert [each["id"] for each in scored["completion_probabilities"]] == list(b"abcd")
    pieces = [json.loads(line.removeprefix("data: ")) for line in stream.text.split("\n\n") if line]
    assert [piece["tokens"] for piece in pieces] == [list(b"ab"), list(b"cd"), []]
    assert [len(piece["completion_probabilities"]) for piece in pieces] == [2, 2, 0]
    assert [response.status_code for response in refused] == [422, 422]


@pytest.mark.parametrize(
    ("body", "status"),
    [({}, 422), ({"prompt": []}, 400), ({"prompt": [-1]}, 400), ({"prompt": {"a": 1}}, 422)],
)
async def test_a_completion_without_a_text_is_refused(body: dict[str, Any], status: int) -> None:
    async with http_client(FakeModels(FakeClient())) as client:
        response = await client.post("/completion", json=body)
    assert response.status_code == status
    assert "prompt" in response.json()["error"]["message"]


async def test_tokens_become_text_again() -> None:
    async with http_client(FakeModels(FakeClient())) as client:
        response = await client.post("/detokenize", json={"tokens": [72, 105]})
        same = await client.post("/extras/detokenize", json={"tokens": [72, 105]})
        wrong = await client.post("/detokenize", json={"tokens": [-5]})
    assert response.json() == {"content": same.json()["text"]}
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "tokens")


@pytest.mark.parametrize("path", ["/tokenize", "/llama-server/tokenize"])
async def test_a_text_is_cut_in_llama_servers_form(path: str) -> None:
    async with http_client(FakeModels(FakeClient())) as client:
        plain = await client.post(path, json={"content": "Hé"})
        pieces = await client.post(path, json={"content": "Hé", "with_pieces": True})
        extras = await client.post("/extras/tokenize", json={"input": "Hé", "with_pieces": True})
        wrong = await client.post(path, json={"content": 5})
    tokens, texts = extras.json()["tokens"], extras.json()["pieces"]
    assert plain.json() == {"tokens": tokens[-len(plain.json()["tokens"]) :]}
    shown = pieces.json()["tokens"]
    assert [each["id"] for each in shown] == plain.json()["tokens"]
    assert [each["piece"] for each in shown] == texts[-len(shown) :]
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (422, "invalid_request_error")


async def test_the_shared_path_stays_tgis_for_its_bodies() -> None:
    async with http_client(FakeModels(FakeClient())) as client:
        native = await client.post("/tokenize", json={"inputs": "Hi"})
        both = await client.post("/tokenize", json={"inputs": "Hi", "content": "Hi"})
        neither = await client.post("/tokenize", json={})
        broken = await client.post("/tokenize", content=b'{"content": ')
    assert native.json() == both.json() and native.json()[0].keys() == {"id", "text", "start", "stop"}
    assert neither.status_code == 422
    assert broken.status_code in (400, 422)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages", {"model": "m", "messages": MESSAGES, "max_tokens": 9}),
        ("/v1/messages", {"model": "m", "messages": 5}),
        ("/v1/messages/count_tokens", {"model": "m", "messages": MESSAGES}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/responses", {"input": 5}),
        ("/v1/responses/input_tokens", {"input": "Hi"}),
    ],
)
async def test_lmdeploys_newer_routes_are_those_at_the_root(path: str, body: dict[str, Any]) -> None:
    momentary = {"id", "created_at", "completed_at", "output", "request_id"}
    async with http_client(FakeModels(FakeClient(name="m", script=SAYING))) as client:
        ours = await client.post(path, json=body)
        theirs = await client.post("/lmdeploy" + path, json=body)
    assert theirs.status_code == ours.status_code
    one, two = ours.json(), theirs.json()
    assert one.keys() == two.keys()
    assert {name: one[name] for name in one.keys() - momentary} == {
        name: two[name] for name in two.keys() - momentary
    }


async def kept(client: httpx.AsyncClient, **fields: Any) -> str:
    response = await client.post("/v1/responses", json={"model": "m"} | fields)
    assert response.status_code == 200, response.text
    return response.json()["id"]


async def test_the_items_that_an_answer_continues_are_listed() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "5"}
    async with http_client(FakeModels(FakeClient(name="m", script=SAYING))) as client:
        first = await kept(client, input=[{"role": "user", "content": "Hi"}, call, output])
        second = await kept(client, input="More", previous_response_id=first)
        rising = (await client.get(f"/v1/responses/{first}/input_items?order=asc")).json()
        both = (await client.get(f"/v1/responses/{second}/input_items")).json()
        page = (await client.get(f"/v1/responses/{second}/input_items?limit=2")).json()
        rest = (
            await client.get(f"/v1/responses/{second}/input_items?limit=9&after={page['last_id']}")
        ).json()
        wrong = await client.get(f"/v1/responses/{second}/input_items?after=x")
        unknown = await client.get("/v1/responses/resp_x/input_items")
        limit = await client.get(f"/v1/responses/{second}/input_items?limit=0")
    assert [row["type"] for row in rising["data"]] == ["message", "function_call", "function_call_output"]
    assert rising["data"][0]["content"] == [{"type": "input_text", "text": "Hi"}]
    assert rising["data"][1] | call == rising["data"][1]
    assert (rising["object"], rising["has_more"]) == ("list", False)
    assert [row["role"] for row in both["data"] if row["type"] == "message"] == ["user", "assistant", "user"]
    assert both["data"] == page["data"] + rest["data"]
    assert (page["has_more"], rest["has_more"], page["first_id"]) == (True, False, both["data"][0]["id"])
    assert len({row["id"] for row in both["data"]}) == len(both["data"]) == 5
    assert (wrong.status_code, unknown.status_code, limit.status_code) == (400, 404, 422)


async def test_only_answers_in_the_background_could_be_cancelled() -> None:
    async with http_client(FakeModels(FakeClient(name="m", script=SAYING))) as client:
        known = await kept(client, input="Hi")
        refused = await client.post(f"/v1/responses/{known}/cancel")
        unknown = await client.post("/v1/responses/resp_x/cancel")
        still = await client.get(f"/v1/responses/{known}")
    assert (refused.status_code, unknown.status_code, still.status_code) == (400, 404, 200)
    assert "in the background" in refused.json()["error"]["message"]


async def test_slots_are_shown_and_not_changed() -> None:
    facts = fake_facts(parallel=3, n_ctx=2048)
    async with http_client(FakeModels(FakeClient(name="m", facts=facts))) as client:
        shown = await client.get("/slots")
        changed = await client.post("/slots/0?action=erase")
    assert shown.json() == [{"id": each, "n_ctx": 2048, "is_processing": False} for each in range(3)]
    assert changed.status_code in (404, 405)
