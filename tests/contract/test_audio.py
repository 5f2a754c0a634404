"""Sound in OpenAI's dialect: chats and transcriptions, what is counted, and what is refused by which field."""

from __future__ import annotations

import array
import base64
import json
from typing import Any

import pytest

from jan_serve.core.messages import AudioPiece
from tests.support.engine.fake_client import FakeClient, FakeModels, fake_facts, prompt_text
from tests.support.media.sounds import flac, mp3, tone, wav
from tests.support.servers.fronts import http_client

pytestmark = pytest.mark.anyio

CHAT, TRANSCRIBE = "/v1/chat/completions", "/v1/audio/transcriptions"
ANSWER = "Hello."
FILE = wav(tone(0.5))
FIELD = "messages[0].content[0].input_audio.data"


def hearing(**facts: Any) -> FakeModels:
    return FakeModels(
        FakeClient(
            facts=fake_facts(**({"modalities": ("audio",), "audio_rate": 16_000, "n_ctx": 2048} | facts))
        )
    )


def chat(data: bytes | str, **fields: Any) -> dict[str, Any]:
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    sound = {"type": "input_audio", "input_audio": {"data": text, "format": "wav"}}
    content = [sound, {"type": "text", "text": "What is said?"}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 9, **fields}


def sound_of(models: FakeModels) -> AudioPiece:
    [request] = models.clients[0].requests
    [sound] = [piece for piece in request.prompt if isinstance(piece, AudioPiece)]
    return sound


@pytest.mark.parametrize("data", [FILE, flac(tone(0.5)), wav(tone(0.5, rate=44_100), rate=44_100)])
async def test_a_chat_hears_its_sound_before_the_question(data: bytes) -> None:
    models = hearing()
    async with http_client(models) as client:
        reply = await client.post(CHAT, json=chat(data))
    assert reply.status_code == 200, reply.text
    sound = sound_of(models)
    assert (sound.frames, len(sound.samples)) == (8_000, 32_000)
    found = array.array("f", sound.samples)
    assert max(found) == pytest.approx(0.5, abs=0.03)
    text = prompt_text(models.clients[0].requests[0])
    assert "[sound]What is said?" in text
    assert reply.json()["usage"]["prompt_tokens"] == len(text)


HOSTILE: dict[str, tuple[bytes | str, str]] = {
    "empty": ("", "the audio is empty"),
    "wrong base64": ("%%%", "not encoded as base64"),
    "an image": (b"\x89PNG\r\n\x1a\n" + bytes(90), "not WAV, MP3 or FLAC"),
    "cut off": (FILE[:500], "its header says 16000"),
    "flac, cut off": (flac()[:50], "damaged"),
    "a day by its header": (wav(claimed=24 * 3600 * 16_000), "the limit is 600 s"),
    "no rate": (wav(rate=0), "0 samples a second"),
    "255 channels": (wav(channels=255), "255 channels; the limit is 8"),
    "not a number": (wav([0.1, float("nan"), 0.1], encoding=3), "samples that are no sound"),
}


@pytest.mark.parametrize(("data", "words"), HOSTILE.values(), ids=HOSTILE)
async def test_a_wrong_sound_is_a_400_that_names_its_field(data: bytes | str, words: str) -> None:
    models = hearing()
    async with http_client(models) as client:
        chatted = await client.post(CHAT, json=chat(data))
        assert chatted.status_code == 400
        assert chatted.json()["error"]["message"].startswith(f"{FIELD}: ")
        assert words in chatted.json()["error"]["message"]
        if isinstance(data, bytes):
            transcribed = await client.post(TRANSCRIBE, files={"file": ("a.wav", data)})
            assert transcribed.status_code == 400
            assert transcribed.json()["error"]["param"] == "file"
            assert words in transcribed.json()["error"]["message"]
    assert models.clients[0].requests == []


async def test_labels_do_not_matter() -> None:
    models = hearing()
    async with http_client(models) as client:
        assert (await client.post(CHAT, json=chat(mp3(40)))).status_code == 200
        url = "data:audio/mp3;base64," + base64.b64encode(FILE).decode()
        assert (await client.post(CHAT, json=chat(url))).status_code == 200


async def test_nine_sounds_are_too_many() -> None:
    body = chat(FILE)
    body["messages"][0]["content"] *= 9
    async with http_client(hearing()) as client:
        reply = await client.post(CHAT, json=body)
    assert reply.status_code == 400
    assert "9 sounds; the limit is 8" in reply.text


@pytest.mark.parametrize("modalities", [(), ("vision",)])
async def test_a_model_that_does_not_hear_says_so(modalities: tuple[str, ...]) -> None:
    models = FakeModels(FakeClient(facts=fake_facts(modalities=modalities)))
    async with http_client(models) as client:
        chatted = await client.post(CHAT, json=chat(FILE))
        transcribed = await client.post(TRANSCRIBE, files={"file": ("a.wav", FILE)})
    reads = "cannot hear" if modalities else "reads text only"
    assert (chatted.status_code, transcribed.status_code) == (400, 400)
    words = f"audio, and fake {reads}; no model of this server can hear"
    assert chatted.json()["error"]["message"] == f"{FIELD}: {words}"
    assert transcribed.json()["error"]["message"] == f"file: {words}"


async def test_a_damaged_projector_is_not_the_clients_fault() -> None:
    fault = "its projector mmproj.gguf cannot be used: it is damaged"
    models = FakeModels(FakeClient(facts=fake_facts(projector_fault=fault)))
    async with http_client(models) as client:
        reply = await client.post(CHAT, json=chat(FILE))
    assert reply.status_code == 503
    assert fault in reply.json()["error"]["message"]


FORMS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "json": ({}, {}),
    "verbose_json": (
        {"response_format": "verbose_json", "language": "en"},
        {"task": "transcribe", "duration": 0.5, "language": "en"},
    ),
    "verbose_json without a language": (
        {"response_format": "verbose_json"},
        {"task": "transcribe", "duration": 0.5},
    ),
}


@pytest.mark.parametrize(("form", "more"), FORMS.values(), ids=FORMS)
async def test_transcriptions(form: dict[str, str], more: dict[str, Any]) -> None:
    models = hearing()
    async with http_client(models) as client:
        reply = await client.post(TRANSCRIBE, files={"file": ("a.wav", FILE)}, data={"model": "fake", **form})
    assert reply.status_code == 200, reply.text
    body = reply.json()
    usage = body.pop("usage")
    assert {"text": body.pop("text"), **body} == {"text": ANSWER, **more}
    prompt = prompt_text(models.clients[0].requests[0])
    assert usage["input_tokens"] == len(prompt)
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert usage["type"] == "tokens"
    assert ("Its language is en." in prompt) == ("language" in form)


async def test_text_and_hints() -> None:
    models = hearing()
    form = {"response_format": "text", "prompt": "Jan, GGUF", "temperature": "0.5"}
    async with http_client(models) as client:
        reply = await client.post(TRANSCRIBE, files={"file": ("a.wav", FILE)}, data=form)
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    assert reply.text == ANSWER + "\n"
    [request] = models.clients[0].requests
    assert "Jan, GGUF" in prompt_text(request)
    assert request.sampling.temperature == 0.5


async def test_a_stream_ends_with_the_whole_text() -> None:
    models = hearing()
    async with http_client(models) as client:
        reply = await client.post(TRANSCRIBE, files={"file": ("a.wav", FILE)}, data={"stream": "true"})
    lines = [line[6:] for line in reply.text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    *deltas, done = map(json.loads, lines)
    assert {event["type"] for event in deltas} == {"transcript.text.delta"}
    assert done["type"] == "transcript.text.done"
    assert done["text"] == "".join(event["delta"] for event in deltas).strip() == ANSWER
    assert done["usage"]["output_tokens"] > 0


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "times": ({"response_format": "srt"}, "response_format", "give no times"),
    "a format of nobody": ({"response_format": "xml"}, "response_format", "one of json, text, verbose_json"),
    "granularities": ({"timestamp_granularities[]": "word"}, "timestamp_granularities", "give no times"),
    "log-probabilities": ({"include[]": "logprobs"}, "include", "no log-probabilities"),
    "a word for a number": ({"temperature": "hot"}, "temperature", "not a number"),
    "too hot": ({"temperature": "900"}, "temperature", "temperature"),
    "a stream of nobody": ({"stream": "maybe"}, "stream", "true or false"),
    "a verbose stream": (
        {"stream": "true", "response_format": "verbose_json"},
        "response_format",
        "json or text",
    ),
    "a field of nobody": ({"speed": "2"}, "speed", "no field of this form"),
    "twice": ({"model": ["a", "b"]}, "model", "given twice"),
    "too long": ({"prompt": "x" * 10_001}, "prompt", "the limit is 10000"),
}


@pytest.mark.parametrize(("form", "param", "words"), REFUSED.values(), ids=REFUSED)
async def test_wrong_fields_are_named(form: dict[str, Any], param: str, words: str) -> None:
    async with http_client(hearing()) as client:
        reply = await client.post(TRANSCRIBE, files={"file": ("a.wav", FILE)}, data=form)
    assert reply.status_code == 400, reply.text
    assert (reply.json()["error"]["param"], words in reply.json()["error"]["message"]) == (param, True)


async def test_a_body_that_is_no_form_or_has_no_file_is_refused() -> None:
    async with http_client(hearing()) as client:
        plain = await client.post(TRANSCRIBE, json={"file": "x"})
        empty = await client.post(TRANSCRIBE, files={"other": ("a", b"x")})
    assert plain.status_code == 400 and "multipart/form-data" in plain.text
    assert empty.status_code == 400 and "no field of this form" in empty.text
