"""What the engine is told for each field of Ollama's requests, and what is refused with which words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.core.constraint import CompiledGrammar
from tests.contract.ollama.support import (
    CHAT,
    HERMES,
    TEXT,
    TOOL,
    call,
    error,
    lines,
    model,
    thinking_model,
    told,
)
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts, saying
from tests.support.engine.fake_vocabulary import CHAT_TEMPLATE
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio


PROMPT = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(("path", "body"), [("/api/chat", CHAT), ("/api/generate", TEXT)])
async def test_options(path: str, body: dict[str, Any]) -> None:
    models = model()
    await lines(path, body | {"options": {"seed": 5, "top_k": 3, "num_predict": 7}}, models)
    assert (told(models).sampling.seed, told(models).sampling.top_k) == (5, 3)
    assert told(models).stopping.max_tokens == 7
    refused = model()
    text = 'option "top_p" must be from 0 to 1'
    assert await error(path, body | {"options": {"top_p": 1.5}}, refused) == (400, text)
    assert refused.clients[0].requests == []


@pytest.mark.parametrize("seed", [-1, -7])
async def test_a_negative_seed_draws_one(seed: int) -> None:
    models = model()
    await lines("/api/chat", CHAT | {"options": {"seed": seed}}, models)
    assert told(models).sampling.seed >= 0


@pytest.mark.parametrize(
    ("think", "prompt", "budget"),
    [
        (None, PROMPT, None),
        (True, PROMPT, None),
        (False, PROMPT + "<think>\n\n</think>\n\n", 0),
        ("low", PROMPT, 1_024),
        ("medium", PROMPT, 8_192),
        ("high", PROMPT, None),
        ("max", PROMPT, None),
    ],
)
async def test_think(think: Any, prompt: str, budget: int | None) -> None:
    models = thinking_model()
    await lines("/api/chat", CHAT | {"think": think}, models)
    request = told(models)
    assert request.prompt == (prompt,)
    assert request.guide.thought.budget == budget
    assert request.guide.thought.may_open is (think is not False)


async def test_think_is_off_or_wrong() -> None:
    models = model()
    await lines("/api/chat", CHAT | {"think": False}, models)
    assert told(models).prompt == (PROMPT,)
    status, text = await error("/api/chat", CHAT | {"think": "a lot"}, thinking_model())
    assert (status, text) == (
        400,
        'invalid think value: \'a lot\' (must be "high", "medium", "low", "max", true, or false)',
    )


async def test_a_format_holds_behind_the_thought() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    for value in ("json", schema):
        models = model()
        await lines("/api/chat", CHAT | {"format": value}, models)
        assert isinstance(told(models).guide.grammar, CompiledGrammar) and told(models).guide.thought is None
        models = thinking_model()
        await lines("/api/chat", CHAT | {"format": value}, models)
        assert isinstance(told(models).guide.grammar, CompiledGrammar)
        assert told(models).guide.thought.may_open
    for value in ("", None):
        models = model()
        await lines("/api/generate", TEXT | {"format": value}, models)
        assert told(models).guide is None
    assert await error("/api/chat", CHAT | {"format": "xml"}) == (
        400,
        "invalid format: 'xml'; expected \"json\" or a valid JSON Schema object",
    )
    status, text = await error("/api/chat", CHAT | {"format": {"type": "nothing"}})
    assert status == 400
    assert "JSON Schema" in text


async def test_raw_text_has_no_template() -> None:
    for body in ({"raw": True}, {"template": "{{ .Prompt }}"}):
        models = model()
        await lines("/api/generate", TEXT | body, models)
        assert told(models).prompt == ("Hi",)
    for more in ({"system": "s"}, {"template": "t"}, {"context": [1]}):
        status, text = await error("/api/generate", TEXT | {"raw": True} | more)
        assert (status, text) == (400, "raw mode does not support template, system, or context")
    status, text = await error("/api/generate", TEXT | {"template": "{{ .System }} {{ .Prompt }}"})
    assert status == 400
    assert text.startswith("template: templates of requests are not supported")


async def test_a_system_message_of_a_text() -> None:
    models = model()
    await lines("/api/generate", TEXT | {"system": "Be brief."}, models)
    assert told(models).prompt == ("<|im_start|>system\nBe brief.<|im_end|>\n" + PROMPT,)


async def test_a_suffix_is_filled_in() -> None:
    bos = fake_facts().special_tokens["bos"]
    tokens = dict.fromkeys(("fim_pre", "fim_suf", "fim_mid"), bos)
    models = model(special_tokens=tokens)
    await lines("/api/generate", TEXT | {"suffix": "z"}, models)
    assert told(models).prompt == ((256,), "Hi", (256,), "z", (256,))


@pytest.mark.parametrize(
    "results",
    [
        [{"content": "rain"}, {"content": "sun"}],
        [{"content": "sun", "tool_name": "time"}, {"content": "rain", "tool_name": "weather"}],
        [{"content": "rain", "tool_call_id": "a"}, {"content": "sun", "tool_call_id": "b"}],
        [{"content": "sun", "tool_call_id": "b"}, {"content": "rain"}],
    ],
)
async def test_results_of_tools_meet_their_calls(results: list[dict[str, Any]]) -> None:
    """The template shows each result with the id and name of its call."""
    template = (
        "{% for m in messages %}{% for c in m.tool_calls or [] %}[{{ c.id }}:{{ c.function.name }}"
        "={{ c.function.arguments | tojson }}]{% endfor %}"
        "{% if m.role == 'tool' %}({{ m.tool_call_id }}:{{ m.name }}={{ m.content }}){% endif %}{% endfor %}"
    )
    calls = [
        {"id": "a", "function": {"name": "weather", "arguments": {"b": 1, "a": "é"}}},
        {"id": "b", "function": {"name": "time", "arguments": '{"x": []}'}},
    ]
    messages = [
        {"role": "user", "content": "?"},
        {"role": "Assistant", "content": "", "tool_calls": calls},
        *({"role": "tool"} | result for result in results),
    ]
    models = model(template=template)
    await lines("/api/chat", CHAT | {"messages": messages}, models)
    [prompt] = told(models).prompt
    assert '[a:weather={"b": 1, "a": "é"}][b:time={"x": []}]' in prompt
    assert "(a:weather=rain)" in prompt
    assert "(b:time=sun)" in prompt


async def test_calls_without_ids_get_different_ones() -> None:
    template = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.id }}]{% endfor %}"
        "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}({{ m.tool_call_id }}){% endfor %}"
    )
    called: Any = [{"function": {"name": "f", "arguments": {}}}]
    turn = [
        {"role": "assistant", "tool_calls": called * 2},
        {"role": "tool", "content": ""},
        {"role": "tool"},
    ]
    models = model(template=template)
    await lines("/api/chat", CHAT | {"messages": [{"role": "user"}, *turn, *turn]}, models)
    [prompt] = told(models).prompt
    ids = [f"call_{number}" for number in range(4)]
    for first, second in (ids[:2], ids[2:]):
        assert f"[{first}][{second}]" in prompt
        assert f"({first})" in prompt
        assert f"({second})" in prompt


async def test_tools_reach_the_template_and_an_empty_list_is_none() -> None:
    models = model(template=HERMES)
    await lines("/api/chat", CHAT | {"tools": [TOOL]}, models)
    assert '"weather"' in told(models).prompt[0]
    models = model(template=HERMES)
    await lines("/api/chat", CHAT | {"tools": []}, models)
    assert "<tools>" not in told(models).prompt[0]


@pytest.mark.parametrize("arguments", ["[1]", "null", '{"a": 1, "b', None, {}])
async def test_a_call_without_an_object_as_its_arguments_is_shown(arguments: Any) -> None:
    models = model(template=HERMES)
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}
    asked = {"messages": [{"role": "user", "content": "Hi"}, call, {"role": "tool", "content": "no"}]}
    await lines("/api/chat", CHAT | {"tools": [TOOL]} | asked, models)
    assert "'name': 'f'" in told(models).prompt[0]


async def test_more_context_than_is_loaded_is_said_and_reloads_nothing() -> None:
    async with http_client(models := model()) as client:
        fits = await client.post("/api/chat", json=CHAT | {"options": {"num_ctx": 512}})
        more = await client.post("/api/chat", json=CHAT | {"options": {"num_ctx": 8192}})
        old = await client.post("/api/generate", json=TEXT | {"context": [1, 2]})
    assert "x-jan-serve-warning" not in fits.headers
    assert more.headers["x-jan-serve-warning"] == (
        "num_ctx: 8192 is above the 512 tokens of the loaded model, which no request reloads"
    )
    assert old.headers["x-jan-serve-warning"] == "context: ignored; send a conversation to /api/chat"
    assert models.keep_alives == [None] * 3


@pytest.mark.parametrize(
    ("keep_alive", "seconds"),
    [(-1, -1.0), ("-1", -1.0), ("-1s", -1.0), (30, 30.0), ("1h30m", 5400.0), ("300s", 300.0), (None, None)],
)
async def test_keep_alive(keep_alive: Any, seconds: float | None) -> None:
    models = model()
    await lines("/api/chat", CHAT | {"keep_alive": keep_alive}, models)
    assert models.keep_alives == [seconds]


LOADED = '{"model":"m","created_at":"T",%s,"done":true,"done_reason":"%s"}'


CONTENT = {"/api/chat": '"message":{"role":"assistant","content":""}', "/api/generate": '"response":""'}


@pytest.mark.parametrize("path", CONTENT)
async def test_without_a_prompt_the_model_is_loaded_or_unloaded(path: str) -> None:
    models = model()
    empty: Any = {"model": "m", "messages": [], "prompt": "", "keep_alive": "10m"}
    for body in ({"model": "m"}, empty):
        assert await call(path, body, models) == (200, LOADED % (CONTENT[path], "load"))
    assert models.keep_alives == [None, 600.0]
    for value in (0, "0", "0s"):
        assert await call(path, {"model": "m", "keep_alive": value}, models) == (
            200,
            LOADED % (CONTENT[path], "unload"),
        )
    assert models.unloaded == ["m"] * 3
    assert models.clients[0].requests == []
    for body in ({"model": "x"}, {"model": "x", "keep_alive": 0}):
        assert await error(path, body, models) == (404, "model 'x' not found")


async def test_a_prompt_and_keep_alive_0_answers_then_unloads() -> None:
    models = model()
    await lines("/api/generate", TEXT | {"keep_alive": 0}, models)
    assert models.keep_alives == [0.0]


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/api/embed", "/api/embeddings"])
async def test_bodies_that_are_refused(path: str) -> None:
    assert await error(path, {}) == (400, "model is required")
    async with http_client(model()) as client:
        for content in (b"", b" \n"):
            response = await client.post(path, content=content)
            assert (response.status_code, response.json()) == (400, {"error": "missing request body"})
        response = await client.post(path, content=b"{", headers={"content-type": "text/plain"})
        assert response.status_code == 400
        assert "not valid JSON" in response.json()["error"]
        wrong = await client.post(path, json={"model": 5})
        assert wrong.status_code == 400
        assert "model" in wrong.json()["error"]
        got = await client.get(path)
        assert (got.status_code, got.headers["allow"]) == (405, "POST")
        assert list(got.json()) == ["error"]


async def test_a_program_needs_no_content_type_and_a_page_does() -> None:
    """A page could send these types without a preflight."""
    content = json.dumps(CHAT).encode()
    async with http_client(model()) as client:
        for kind in ("application/x-www-form-urlencoded", "text/plain"):
            response = await client.post("/api/chat", content=content, headers={"content-type": kind})
            assert response.status_code == 200
        assert (await client.post("/api/chat", content=content)).status_code == 200
        page = {"origin": "http://localhost:3000", "content-type": "text/plain"}
        assert (await client.post("/api/chat", content=content, headers=page)).status_code == 415
        foreign = {"origin": "https://evil.example", "content-type": "application/json"}
        assert (await client.post("/api/chat", content=content, headers=foreign)).status_code == 403


async def test_a_key_is_asked_for_in_ollamas_form() -> None:
    async with http_client(model(), api_keys=("secret",)) as client:
        refused = await client.post("/api/chat", json=CHAT)
        served = await client.post("/api/chat", json=CHAT, headers={"authorization": "Bearer secret"})
    assert (refused.status_code, refused.json()) == (401, {"error": "Invalid API key"})
    assert served.status_code == 200


async def test_images_are_refused_without_being_opened() -> None:
    image = "aGk="
    for path, body in (
        ("/api/chat", {"model": "m", "messages": [{"role": "user", "content": "?", "images": [image]}]}),
        ("/api/generate", TEXT | {"images": [image]}),
    ):
        status, text = await error(path, body)
        assert status == 400
        assert "image" in text


async def test_too_many_images_have_the_words_of_every_dialect() -> None:
    images = ["aGk="] * 100
    for field, path, body in (
        ("messages[0].images", "/api/chat", {"model": "m", "messages": [{"role": "user", "images": images}]}),
        ("images", "/api/generate", TEXT | {"images": images}),
    ):
        assert await error(path, body) == (400, f"{field}[64]: the request has 100 images; the limit is 64")


async def test_embeddings() -> None:
    models = model()
    status, text = await call("/api/embed", {"model": "m", "input": ["a", "bc"]}, models)
    vector = json.loads(text)["embeddings"][0]
    assert (status, text) == (
        200,
        f'{{"model":"m","embeddings":[{json.dumps(vector).replace(" ", "")},{json.dumps(vector).replace(" ", "")}],'
        '"total_duration":1,"load_duration":1,"prompt_eval_count":3}',
    )
    assert vector == pytest.approx([0.6, 0.8, 0, 0])
    _, one = await call("/api/embed", {"model": "m", "input": "a", "dimensions": 1}, models)
    assert json.loads(one)["embeddings"] == [[1.0]]
    no_inputs: list[Any] = [{}, {"input": ""}, {"input": []}]
    for nothing in no_inputs:
        _, empty = await call("/api/embed", {"model": "m"} | nothing, models)
        assert json.loads(empty)["embeddings"] == []
    models.keep_alives.clear()
    _, old = await call("/api/embeddings", {"model": "m", "prompt": "a", "keep_alive": 0}, models)
    assert models.keep_alives == [0.0]
    assert json.loads(old) == {"embedding": vector}
    assert await call("/api/embeddings", {"model": "m", "prompt": ""}, models) == (200, '{"embedding":[]}')
    for wrong in (5, [5], [["a"]], {"a": "b"}):
        assert await error("/api/embed", {"model": "m", "input": wrong}) == (
            400,
            "invalid input type: a text or a list of texts is expected",
        )


async def test_the_server_itself() -> None:
    async with http_client(model()) as client:
        for method in ("GET", "HEAD"):
            response = await client.request(method, "/", headers={"accept": "*/*"})
            assert response.status_code == 200
            assert response.text == ("Ollama is running" if method == "GET" else "")
            assert (await client.request(method, "/api/version")).status_code == 200
        version = (await client.get("/api/version")).json()["version"]
        assert tuple(map(int, version.split("."))) >= (0, 6, 4)
        assert (await client.get("/api/status")).json() == {"cloud": {"disabled": True, "source": "none"}}
        recommended = await client.get("/api/experimental/model-recommendations")
        assert recommended.json() == {"recommendations": []}
        generated = await client.post("/", json={"inputs": "Hi"})
        assert generated.json() == [{"generated_text": "HiHello."}]
        for path in (
            "/api/push",
            "/api/me",
            "/api/signout",
            "/api/experimental/web_search",
            "/api/web_fetch",
        ):
            response = await client.post(path, json={"model": "m"})
            assert response.status_code == 404
            assert response.json()["error"].startswith("this server ")
        assert (await client.get("/api/nothing")).json() == {
            "error": "There is no such route on this server."
        }


async def test_an_input_that_is_too_long_is_cut_on_request_alone() -> None:
    class Short(FakeClient):
        async def embed(self, request: Any) -> Any:
            from jan_serve.errors import ContextLengthExceeded

            for index, item in enumerate(request.inputs):
                if len(item) > 3:
                    raise ContextLengthExceeded(len(item), 3, param="input", item=index)
            self.embedded = request.inputs
            return await super().embed(request)

    client = Short(name="m", facts=fake_facts(chat_templates={"default": CHAT_TEMPLATE}), script=saying("x"))
    models = FakeModels(client)
    body = {"model": "m", "input": ["abcdef", "ab", "ghijkl"]}
    for truncate in (None, False):
        status, text = await error("/api/embed", body | {"truncate": truncate}, models)
        assert status == 400
        assert text.startswith("the input length exceeds the context length")
    status, _ = await call("/api/embed", body | {"truncate": True}, models)
    assert status == 200
    assert client.embedded == ((256, *b"ab"), "ab", (256, *b"gh"))
    models.keep_alives.clear()
    status, _ = await call("/api/embed", body | {"truncate": True, "keep_alive": 0}, models)
    assert (status, models.keep_alives, models.held) == (200, [0.0], 0), "one lease: one load"
