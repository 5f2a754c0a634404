"""Images in every dialect: where they are placed, what is counted, and what is refused by which field."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from jan_serve.core.messages import ImagePiece
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts, prompt_text
from tests.support.media.pictures import BLUE, RED, data_url, picture, png_header
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

FILE = picture(16, 8, color=RED)
URL, BARE = data_url(FILE), base64.b64encode(FILE).decode()
ASK = "What is it?"


@dataclass(frozen=True)
class Way:
    """How a dialect sends an image and a question.

    body: for a URL. field: of the image. count_path: of the route that counts tokens.
    """

    path: str
    body: Callable[[str], dict[str, Any]]
    field: str
    prompt_tokens: Callable[[httpx.Response], int]
    count_path: str | None = None


def _chat(url: str) -> dict[str, Any]:
    image = {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
    return {
        "messages": [{"role": "user", "content": [image, {"type": "text", "text": ASK}]}],
        "max_tokens": 9,
    }


def _plain_chat(url: str) -> dict[str, Any]:
    body = _chat(url)
    body["messages"][0]["content"][0]["image_url"] = {"url": url}
    return {"model": "fake", **body}


def _response(url: str) -> dict[str, Any]:
    image = {"type": "input_image", "image_url": url}
    return {"input": [{"role": "user", "content": [image, {"type": "input_text", "text": ASK}]}]}


def _response_result(url: str) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": ASK}]
    return {"input": [call, {"type": "function_call_output", "call_id": "c", "output": output}]}


def _block(url: str) -> dict[str, Any]:
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    media_type, _, data = url.removeprefix("data:").partition(";base64,")
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def _message(url: str) -> dict[str, Any]:
    content = [_block(url), {"type": "text", "text": ASK}]
    return {"model": "fake", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}


def _result(url: str) -> dict[str, Any]:
    use: dict[str, Any] = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": _message(url)["messages"][0]["content"]}
    turns: list[Any] = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    return _message(url) | {"messages": turns}


def _ollama(url: str) -> str:
    return url.partition("base64,")[2] or url


def _usage(reply: httpx.Response) -> int:
    return reply.json()["usage"]["prompt_tokens"]


def _input(reply: httpx.Response) -> int:
    return reply.json()["usage"]["input_tokens"]


def _evaluated(reply: httpx.Response) -> int:
    return reply.json()["prompt_eval_count"]


WAYS = {
    "openai": Way("/v1/chat/completions", _chat, "messages[0].content[0].image_url", _usage),
    "responses": Way(
        "/v1/responses", _response, "input[0].content[0].image_url", _input, "/v1/responses/input_tokens"
    ),
    "responses, result": Way("/v1/responses", _response_result, "input[1].output[0].image_url", _input),
    "anthropic": Way(
        "/v1/messages", _message, "messages[0].content[0].source", _input, "/v1/messages/count_tokens"
    ),
    "anthropic, result": Way("/v1/messages", _result, "messages[1].content[0].content[0].source", _input),
    "ollama chat": Way(
        "/api/chat",
        lambda url: {
            "model": "fake",
            "stream": False,
            "messages": [{"role": "user", "content": ASK, "images": [_ollama(url)]}],
        },
        "messages[0].images[0]",
        _evaluated,
    ),
    "ollama generate": Way(
        "/api/generate",
        lambda url: {"model": "fake", "stream": False, "prompt": ASK, "images": [_ollama(url)]},
        "images[0]",
        _evaluated,
    ),
    "ollama raw": Way(
        "/api/generate",
        lambda url: {"model": "fake", "stream": False, "raw": True, "prompt": ASK, "images": [_ollama(url)]},
        "images[0]",
        _evaluated,
    ),
    "tgi generate": Way(
        "/tgi/generate",
        lambda url: {"inputs": f"![]({url}){ASK}", "parameters": {"max_new_tokens": 5}},
        "inputs",
        lambda reply: int(reply.headers["x-prompt-tokens"]) - 1,  # BOS
    ),
    "tgi chat": Way("/tgi/v1/chat/completions", _plain_chat, "inputs", _usage),
    "lmdeploy chat": Way(
        "/lmdeploy/v1/chat/completions", _plain_chat, "messages[0].content[0].image_url", _usage
    ),
    "lmdeploy generate": Way(
        "/lmdeploy/generate",
        lambda url: {"prompt": f"<IMAGE_TOKEN>{ASK}", "image_data": [url], "max_tokens": 5},
        "image_data[0]",
        lambda reply: reply.json()["meta_info"]["prompt_tokens"],
    ),
}
ALL = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def seeing(**facts: Any) -> FakeModels:
    return FakeModels(FakeClient(facts=fake_facts(**({"modalities": ("vision",), "n_ctx": 2048} | facts))))


@ALL
async def test_the_model_sees_the_image_before_the_question(way: Way) -> None:
    models = seeing()
    async with http_client(models) as client:
        reply = await client.post(way.path, json=way.body(URL))
    assert reply.status_code == 200, reply.text
    [request] = models.clients[0].requests
    [image] = [piece for piece in request.prompt if isinstance(piece, ImagePiece)]
    assert (image.width, image.height, image.pixels) == (16, 8, bytes(RED) * 16 * 8)
    text = prompt_text(request)
    assert f"[16x8]{ASK}" in text
    assert "base64" not in text
    assert way.prompt_tokens(reply) == len(text)


@ALL
async def test_a_wrong_image_is_a_400_that_names_its_field(way: Way) -> None:
    cases = {
        data_url(b"GIF89a"): "ends within its header",
        data_url(b"hello"): "not a PNG",
        data_url(png_header(4, 4)): "damaged",
        data_url(png_header(20_000, 20_000)): "the limit is 32 million",
        data_url(png_header(20_000, 1)): "one side may be 200 times the other",
        "http://127.0.0.1:9/x.png": "fetches no images from other hosts",
    }
    models = seeing()
    async with http_client(models) as client:
        for url, words in cases.items():
            reply = await client.post(way.path, json=way.body(url))
            assert reply.status_code in (400, 422), reply.text
            assert f"{way.field}: " in reply.text
            assert words in reply.text
    assert models.clients[0].requests == []


@ALL
async def test_a_prompt_that_is_too_long_is_refused_before_its_image_is_decoded(way: Way) -> None:
    """The image has no pixels, which only decoding would notice."""
    async with http_client(seeing(n_ctx=20)) as client:
        reply = await client.post(way.path, json=way.body(data_url(png_header(4000, 3000))))
    assert reply.status_code in (400, 422)
    assert "damaged" not in reply.text
    assert "tokens" in reply.text or "context" in reply.text


@pytest.mark.parametrize("name", [name for name, way in WAYS.items() if way.count_path])
async def test_tokens_are_counted_without_decoding(name: str) -> None:
    way, models = WAYS[name], seeing()
    count = {
        key: value for key, value in way.body(data_url(png_header(16, 8))).items() if key != "max_tokens"
    }
    async with http_client(models) as client:
        counted = await client.post(way.count_path or "", json=count)
        await client.post(way.path, json=way.body(URL))
    assert counted.json()["input_tokens"] == len(prompt_text(models.clients[0].requests[0])) + 1


async def test_tgi_tokenizes_an_image_as_its_cells() -> None:
    """Without decoding it. They have no text, and cover its Markdown."""
    markdown = f"![]({data_url(png_header(16, 8))})"
    models = seeing()
    async with http_client(models) as client:
        tokens = (await client.post("/tokenize", json={"inputs": f"é{markdown}{ASK}"})).json()
        first = (await client.post("/tgi/tokenize", json={"inputs": markdown + ASK})).json()
        chat = (await client.post("/chat_tokenize", json=_plain_chat(data_url(png_header(16, 8))))).json()
        await client.post("/tgi/v1/chat/completions", json=_plain_chat(URL))
    cells = len("[16x8]")
    start, stop = 2, 2 + len(markdown)
    assert [each["id"] for each in tokens] == [256, *"é".encode(), *[0] * cells, *ASK.encode()]
    assert tokens[3 : 3 + cells] == [{"id": 0, "text": "", "start": start, "stop": stop}] * cells
    assert tokens[3 + cells] == {"id": ord(ASK[0]), "text": ASK[0], "start": stop, "stop": stop + 1}
    assert [each["id"] for each in first] == [256, *[0] * cells, *ASK.encode()]
    assert len(chat["tokenize_response"]) == len(prompt_text(models.clients[0].requests[0]))


@pytest.mark.parametrize("path", ["/tokenize", "/chat_tokenize"])
async def test_tgi_tokenizes_no_image_for_a_model_without_sight(path: str) -> None:
    body = {"inputs": f"![]({URL})"} if path == "/tokenize" else _plain_chat(URL)
    async with http_client(FakeModels()) as client:
        reply = await client.post(path, json=body)
    assert reply.status_code == 422
    assert "inputs: an image, and fake reads text only" in reply.text


async def test_tgi_scores_no_prompt_with_an_image() -> None:
    models = seeing()
    body = {"inputs": f"![]({URL}){ASK}", "parameters": {"decoder_input_details": True}}
    async with http_client(models) as client:
        reply = await client.post("/generate", json=body)
    assert reply.status_code == 422
    assert "`decoder_input_details` is not supported with images" in reply.text
    assert models.clients[0].requests == []


NOTED = ("responses, result", "anthropic, result")


@pytest.mark.parametrize("name", [name for name in WAYS if name not in NOTED])
async def test_a_model_without_sight_refuses_images(name: str) -> None:
    way, models = WAYS[name], FakeModels(FakeClient(facts=fake_facts(n_ctx=2048)))
    async with http_client(models) as client:
        reply = await client.post(way.path, json=way.body(URL))
    assert reply.status_code == (422 if name.startswith("tgi") else 400)
    assert f"{way.field}: an image, and fake reads text only; no model of this server can see" in reply.text
    assert models.clients[0].requests == []


@pytest.mark.parametrize("name", NOTED)
async def test_a_model_without_sight_reads_a_note_in_place_of_a_results_image(name: str) -> None:
    way, models = WAYS[name], FakeModels()
    async with http_client(models) as client:
        reply = await client.post(way.path, json=way.body(URL))
    assert reply.status_code == 200
    assert "this model reads text only" in reply.headers["x-jan-serve-warning"]
    assert "image" in prompt_text(models.clients[0].requests[0])


@pytest.mark.parametrize("name", ["tgi generate", "tgi chat"])
async def test_a_model_of_tgi_without_sight_reads_the_address_of_an_image(name: str) -> None:
    """Markdown is text as well. A data URL is an image."""
    way, models = WAYS[name], FakeModels(FakeClient(facts=fake_facts(n_ctx=2048)))
    address = "https://pictures.example/a.png"
    async with http_client(models) as client:
        reply = await client.post(way.path, json=way.body(address))
    assert reply.status_code == 200
    assert f"![]({address})" in prompt_text(models.clients[0].requests[0])


@pytest.mark.parametrize("name", ["openai", "ollama chat", "lmdeploy chat"])
async def test_base64_needs_no_label(name: str) -> None:
    way, models = WAYS[name], seeing()
    async with http_client(models) as client:
        assert (await client.post(way.path, json=way.body(BARE))).status_code == 200
    assert any(isinstance(piece, ImagePiece) for piece in models.clients[0].requests[0].prompt)


async def test_llama_servers_template_route_shows_a_mark() -> None:
    async with http_client(seeing()) as client:
        reply = await client.post("/apply-template", json=_chat(URL))
    assert f"<__media__>{ASK}" in reply.json()["prompt"]


async def test_images_of_several_turns_are_in_order() -> None:
    def turn(role: str, *content: Any) -> dict[str, Any]:
        return {"role": role, "content": list(content)}

    def image(data: bytes) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": data_url(data)}}

    models = seeing()
    messages = [
        turn("user", image(FILE), {"type": "text", "text": "first"}),
        {"role": "assistant", "content": "seen"},
        turn("user", {"type": "text", "text": "and"}, image(picture(9, 12, color=BLUE)), image(FILE)),
    ]
    async with http_client(models) as client:
        assert (await client.post("/v1/chat/completions", json={"messages": messages})).status_code == 200
    text = prompt_text(models.clients[0].requests[0])
    assert "[16x8]first" in text
    assert "and[9x12][16x8]" in text
