"""A real server with a model that hears, and OpenAI's own client."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import openai
import pytest

from models.recipe.projector_fixtures import write_tiny_hearing_projector, write_tiny_projector
from tests.integration.http.support import serving_models
from tests.support.clients.raw_http import get, post
from tests.support.media.pictures import data_url, picture
from tests.support.media.sounds import flac, mp3, tone, wav
from tests.support.processes import wait_until

pytestmark = pytest.mark.integration

CELLS = 15


@pytest.fixture(scope="module")
def url(exact_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """ears: a model that hears. eyes: one whose projector is damaged."""
    folder = tmp_path_factory.mktemp("hearing")
    given = folder / "given"
    given.mkdir()
    files = [given / name for name in ("ears.gguf", "mmproj-ears.gguf", "eyes.gguf", "mmproj-eyes.gguf")]
    for model in (files[0], files[2]):
        shutil.copy(exact_llama, model)
    write_tiny_hearing_projector(files[1])
    write_tiny_projector(files[3], "mlp")
    files[3].write_bytes(files[3].read_bytes().replace(b"mlp", b"mlq"))
    with serving_models(folder, *files, exact_llama) as server:
        yield server.url()


@pytest.fixture
def client(url: str) -> Generator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_the_server_says_which_model_hears(url: str) -> None:
    def found() -> dict[str, list[str]]:
        rows = get(url, "/v1/models").json()["data"]
        return {row["id"]: row["architecture"]["input_modalities"] for row in rows}

    wait_until(lambda: found()["ears"] == ["text", "audio"], 60)  # headers are read beside the first lists
    assert found()["exact-llama"] == ["text"]
    assert "audio" in post(url, "/api/show", {"model": "ears"}).json()["capabilities"]


def chat(client: openai.OpenAI, data: bytes, model: str = "ears") -> Any:
    sound = {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": "wav"}}
    messages: Any = [{"role": "user", "content": [sound, {"type": "text", "text": "What is said?"}]}]
    return client.chat.completions.create(
        model=model, messages=messages, max_tokens=4, temperature=0, logprobs=True, top_logprobs=1
    )


def test_answers_depend_on_the_sound_and_a_second_question_computes_only_itself(
    client: openai.OpenAI,
) -> None:
    low, high = wav(tone(hertz=200)), flac(tone(hertz=2000))
    first, other = chat(client, low), chat(client, high)
    assert first.choices[0].logprobs != other.choices[0].logprobs
    again = chat(client, low)
    assert again.choices[0].message == first.choices[0].message
    assert again.usage.prompt_tokens_details.cached_tokens >= CELLS


def test_transcriptions_in_all_forms(client: openai.OpenAI, tmp_path: Path) -> None:
    file = tmp_path / "a.mp3"
    file.write_bytes(mp3(60))
    whole = client.audio.transcriptions.create(model="ears", file=file, language="en")
    assert whole.text and whole.usage is not None and whole.usage.type == "tokens"
    assert whole.usage.input_tokens > CELLS
    text = client.audio.transcriptions.create(model="ears", file=file, language="en", response_format="text")
    assert text == whole.text + "\n"
    verbose = client.audio.transcriptions.create(
        model="ears", file=file, language="en", response_format="verbose_json"
    )
    assert (verbose.text, verbose.duration) == (whole.text, pytest.approx(60 * 1152 / 44_100, abs=0.01))
    events = list(client.audio.transcriptions.create(model="ears", file=file, language="en", stream=True))
    assert events[-1].type == "transcript.text.done" and events[-1].text == whole.text
    assert (
        "".join(event.delta for event in events[:-1] if event.type == "transcript.text.delta").strip()
        == whole.text
    )


def test_a_model_that_does_not_hear_names_one_that_does(client: openai.OpenAI, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav())
    with pytest.raises(openai.BadRequestError, match="exact-llama reads text only; ears can hear"):
        client.audio.transcriptions.create(model="exact-llama", file=tmp_path / "a.wav")
    with pytest.raises(openai.BadRequestError, match="exact-llama reads text only; ears can hear"):
        chat(client, wav(), "exact-llama")


HOSTILE = {
    "cut off": wav()[:300],
    "mislabelled": b"ID3\x04\0\0\0\0\0\0" + bytes(900),
    "a day": wav(claimed=12 * 3600 * 32_000),
    "no rate": wav(rate=0),
    "255 channels": wav(channels=255),
    "no numbers": wav([0.0, float("nan")], encoding=3),
    "flac without samples": flac()[:60],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sounds_are_refused_and_the_model_goes_on(client: openai.OpenAI, name: str) -> None:
    with pytest.raises(openai.BadRequestError):
        chat(client, HOSTILE[name])
    assert chat(client, wav()).choices[0].finish_reason == "length"


SHORT = {
    "a sample": wav([0.1]),
    "a sample of eight channels, in floats": wav([0.1] * 8, channels=8, encoding=3),
    "samples that become one": wav([0.1] * 10, rate=192_000),
    "a sample of flac": flac([0.1]),
    "two samples": wav([0.1] * 2),
    "20 ms": wav([0.1] * 320),
}


@pytest.mark.parametrize("name", SHORT)
def test_the_shortest_sounds_are_heard(client: openai.OpenAI, tmp_path: Path, name: str) -> None:
    (tmp_path / "a.wav").write_bytes(SHORT[name])
    assert chat(client, SHORT[name]).choices[0].finish_reason == "length"
    assert client.audio.transcriptions.create(model="ears", file=tmp_path / "a.wav").usage is not None


def test_a_damaged_projector_is_the_servers_fault(url: str) -> None:
    image = {"type": "image_url", "image_url": {"url": data_url(picture(20, 20))}}
    body = {
        "model": "eyes",
        "messages": [{"role": "user", "content": [image, {"type": "text", "text": "?"}]}],
    }
    refused = post(url, "/v1/chat/completions", body)
    assert refused.status == 503
    assert "its projector mmproj-eyes.gguf cannot be used" in refused.json()["error"]["message"]
    text = {"model": "eyes", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    assert post(url, "/v1/chat/completions", text).status == 200
