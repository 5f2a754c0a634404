"""A real server with a model that sees: what it says about it, what it computes, and what does it no harm."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from models.recipe.projector_fixtures import EncoderShape, write_projector, write_tiny_projector
from tests.integration.http.support import serving_models
from tests.support.clients.raw_http import get, post
from tests.support.media.pictures import BLUE, RED, data_url, encoded, picture, png_bomb, png_header
from tests.support.processes import wait_until

pytestmark = pytest.mark.integration

CHAT = "/v1/chat/completions"
RED_URL = data_url(picture(40, 30, color=RED))
HEADERS = {"eyes": ["text", "image"], "squint": ["text", "image"], "exact-llama": ["text"]}


@pytest.fixture(scope="module")
def url(exact_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder = tmp_path_factory.mktemp("seeing")
    models = folder / "given"
    models.mkdir()
    sighted, projector = models / "eyes.gguf", models / "mmproj-eyes.gguf"
    shutil.copy(exact_llama, sighted)
    write_tiny_projector(projector, "mlp")
    damaged, fatal = models / "squint.gguf", models / "mmproj-squint.gguf"
    shutil.copy(exact_llama, damaged)
    write_projector(fatal, "mlp", EncoderShape(32, 8, 3, heads=3), n_embd=64, seed=0)
    with serving_models(folder, sighted, projector, damaged, fatal, exact_llama) as server:
        yield server.url()


def ask(model: str, *images: str, **fields: Any) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": image}} for image in images]
    content = [*parts, {"type": "text", "text": "What is this?"}]
    return {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 8,
        "temperature": 0,
        **fields,
    }


def test_the_server_says_which_model_sees(url: str) -> None:
    def modalities() -> dict[str, list[str]]:
        rows = get(url, "/v1/models").json()["data"]
        return {row["id"]: row["architecture"]["input_modalities"] for row in rows if row["id"] != "jan-tiny"}

    # Headers are read beside the first lists.
    wait_until(lambda: modalities() == HEADERS, 60)
    assert "vision" in post(url, "/api/show", {"model": "eyes"}).json()["capabilities"]
    assert "vision" not in post(url, "/api/show", {"model": "exact-llama"}).json()["capabilities"]


def test_answers_depend_on_the_image_and_a_second_question_computes_only_itself(url: str) -> None:
    red = post(url, CHAT, ask("eyes", RED_URL, logprobs=True, top_logprobs=1)).json()
    blue = post(
        url, CHAT, ask("eyes", data_url(picture(40, 30, color=BLUE)), logprobs=True, top_logprobs=1)
    ).json()
    bare = post(url, CHAT, ask("eyes")).json()
    assert red["choices"][0]["logprobs"] != blue["choices"][0]["logprobs"]
    image_tokens = red["usage"]["prompt_tokens"] - bare["usage"]["prompt_tokens"]
    assert image_tokens == 16
    again = post(url, CHAT, ask("eyes", RED_URL, logprobs=True, top_logprobs=1)).json()
    assert again["choices"][0]["message"] == red["choices"][0]["message"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] >= image_tokens


def test_a_model_without_sight_names_the_one_that_sees(url: str) -> None:
    refused = post(url, CHAT, ask("exact-llama", RED_URL))
    assert refused.status == 400
    assert "exact-llama reads text only; eyes can see" in refused.json()["error"]["message"]


def test_tgi_counts_an_image_as_the_model_does(url: str) -> None:
    content = ask("eyes", RED_URL)["messages"][0]["content"]
    chat = {"model": "eyes", "messages": [{"role": "user", "content": content}], "max_tokens": 4}
    answered = post(url, "/tgi/v1/chat/completions", chat).json()
    tokens = post(url, "/chat_tokenize", chat).json()["tokenize_response"]
    assert len(tokens) == answered["usage"]["prompt_tokens"]
    prompt = f"![]({RED_URL})What is this?"
    generated = post(url, "/tgi/generate", {"inputs": prompt, "parameters": {"max_new_tokens": 4}})
    assert generated.status == 200
    assert generated.headers["x-prompt-tokens"] == str(
        len(post(url, "/tgi/tokenize", {"inputs": prompt}).json())
    )
    scored = {"inputs": prompt, "parameters": {"decoder_input_details": True}}
    assert post(url, "/tgi/generate", scored).status == 422


def test_a_projector_at_which_llama_cpp_ends_its_process_costs_only_the_sight(url: str) -> None:
    # clip_graph asserts that the heads divide the width (GGML_ASSERT in ggml_reshape_4d).
    assert post(url, CHAT, ask("squint")).status == 200
    refused = post(url, CHAT, ask("squint", RED_URL))
    assert refused.status == 503
    message = refused.json()["error"]["message"]
    assert "squint is served for text only: a load with its projector mmproj-squint.gguf ended" in message
    rows = get(url, "/v1/models").json()["data"]
    assert [row["architecture"]["input_modalities"] for row in rows if row["id"] == "squint"] == [["text"]]
    assert "vision" not in post(url, "/api/show", {"model": "squint"}).json()["capabilities"]


def animated(kind: str) -> bytes:
    frames = [Image.new("RGB", (30, 20), color) for color in (RED, BLUE)]
    return encoded(frames[0], kind, save_all=True, append_images=frames[1:])


NOISE = encoded(Image.effect_noise((64, 48), 50).convert("RGB"), "JPEG")

HOSTILE: dict[str, tuple[list[str], str]] = {
    "bomb": ([data_url(png_header(60_000, 60_000))], "the limit is 32 million"),
    "strip": ([data_url(png_header(20_000, 1))], "200 times"),
    "cut off": ([data_url(png_bomb(64, 64)[:60])], "damaged"),
    "half a jpeg": ([data_url(NOISE[: len(NOISE) // 2], "image/jpeg")], "damaged"),
    "no pixels": ([data_url(png_header(640, 480))], "damaged"),
    "other bytes": ([data_url(b"MZ" + bytes(500))], "not a PNG"),
    "a script": ([data_url(b"<svg onload='x'/>", "image/svg+xml")], "not a PNG"),
    "wrong base64": (["data:image/png;base64,%%%"], "base64"),
    "empty": ([""], "empty"),
    "a hundred": ([RED_URL] * 100, "100 images; the limit is 64"),
    "this machine": (["http://127.0.0.1:1/a.png"], "fetches no images"),
    "metadata of a cloud": (["http://169.254.169.254/latest"], "fetches no images"),
    "a file": (["file:///etc/passwd"], "nothing of `file:` is read"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_images_are_refused_and_the_model_goes_on(url: str, name: str) -> None:
    images, words = HOSTILE[name]
    refused = post(url, CHAT, ask("eyes", *images))
    assert refused.status == 400
    message = refused.json()["error"]["message"]
    assert message.startswith(f"messages[0].content[{64 if name == 'a hundred' else 0}].image_url: ")
    assert words in message
    assert post(url, CHAT, ask("eyes", RED_URL)).status == 200


SERVED = {
    "one pixel": picture(1, 1),
    "large": png_bomb(5656, 1000),
    "cmyk": picture(30, 20, "JPEG", (0, 0, 0, 0), "CMYK"),
    "16 bit": picture(30, 20, color=9, mode="I;16"),
    "gif": picture(30, 20, "GIF"),
    "webp": picture(30, 20, "WEBP"),
    "bmp": picture(30, 20, "BMP"),
    "labelled as png": NOISE,
    "animated gif": animated("GIF"),
    "animated webp": animated("WEBP"),
    "animated png": animated("PNG"),
}


@pytest.mark.parametrize("name", SERVED)
def test_unusual_images_are_answered(url: str, name: str) -> None:
    assert post(url, CHAT, ask("eyes", data_url(SERVED[name]))).status == 200
