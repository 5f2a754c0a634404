"""Open WebUI itself, headless, with this server as its Ollama and as its OpenAI.

Its packages take 6 GB, so no target installs it: set JAN_SERVE_OPEN_WEBUI to the program `open-webui`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from jan_serve.resources import builtin_model
from tests.integration.http.support import serving_models
from tests.integration.store.conftest import FILE, REPO, model_bytes
from tests.support.processes import wait_until
from tests.support.servers.fake_hub import FakeRepo, running_hub

PROGRAM: Final = os.environ.get("JAN_SERVE_OPEN_WEBUI", "")
MODEL: Final = "jan-tiny:latest"
QUESTION: Final = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER: Final = {
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CITY: Final = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not PROGRAM, reason="Open WebUI is not installed (set JAN_SERVE_OPEN_WEBUI)"),
]


@pytest.fixture(scope="module")
def open_webui(tmp_path_factory: pytest.TempPathFactory) -> Generator[httpx2.Client]:
    """A client that has signed in."""
    folder, model = tmp_path_factory.mktemp("open-webui"), builtin_model()
    assert model is not None
    with running_hub() as hub:
        hub.repos[REPO] = FakeRepo({FILE: model_bytes(1 << 16)})
        with (
            serving_models(folder / "server", model, flags=("--hf-endpoint", hub.url)) as server,
            _running(folder, server.url()) as url,
            httpx2.Client(base_url=url, timeout=120) as client,
        ):
            signed_in = client.post("/api/v1/auths/signin", json={"email": "", "password": ""})
            client.headers["Authorization"] = f"Bearer {signed_in.json()['token']}"
            yield client


def test_it_lists_the_models_of_both(open_webui: httpx2.Client) -> None:
    models = {(each["id"], each["owned_by"]) for each in open_webui.get("/api/models").json()["data"]}
    assert models >= {(MODEL, "ollama"), ("jan-tiny", "openai")}
    assert open_webui.get("/ollama/api/version").status_code == 200
    shown = open_webui.post("/ollama/api/show", json={"model": MODEL}).json()
    assert "completion" in shown["capabilities"] and "tools" in shown["capabilities"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("model", [MODEL, "jan-tiny"])
def test_a_chat(open_webui: httpx2.Client, model: str, stream: bool) -> None:
    # Open WebUI reads the temperature for Ollama's API from the options only.
    greedy = {"temperature": 0, "options": {"temperature": 0}}
    body = {"model": model, "messages": QUESTION, "stream": stream, **greedy}
    reply = open_webui.post("/api/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    if stream:
        chunks = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
        text = "".join(
            chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"]
        )
    else:
        text = reply.json()["choices"][0]["message"]["content"]
    assert "Paris" in text


def test_a_tool_is_called(open_webui: httpx2.Client) -> None:
    tools = [{"type": "function", "function": WEATHER}]
    messages = [{"role": "user", "content": "What is the weather in Paris?"}]
    body = {"model": MODEL, "messages": messages, "tools": tools, "stream": False, "temperature": 0}
    (call,) = open_webui.post("/api/chat/completions", json=body).json()["choices"][0]["message"][
        "tool_calls"
    ]
    assert call["function"]["name"] == "get_weather"
    assert set(json.loads(call["function"]["arguments"])) == {"city"}


def test_a_schema_holds(open_webui: httpx2.Client) -> None:
    body = {"model": MODEL, "messages": QUESTION, "format": CITY, "stream": False}
    message = open_webui.post("/ollama/api/chat", json=body).json()["message"]
    assert set(json.loads(message["content"])) == {"city"}


def test_embeddings(open_webui: httpx2.Client) -> None:
    reply = open_webui.post("/ollama/api/embed", json={"model": MODEL, "input": ["a", "b"]}).json()
    assert [len(vector) for vector in reply["embeddings"]] == [192, 192]


def test_a_variant_is_made_and_deleted(open_webui: httpx2.Client) -> None:
    made = open_webui.post(
        "/ollama/api/create", json={"model": "pirate", "from": "jan-tiny", "system": "Arr."}
    )
    assert json.loads(made.text.splitlines()[-1]) == {"status": "success"}
    assert "pirate:latest" in _names(open_webui)
    body = {"model": "pirate:latest"}
    assert open_webui.request("DELETE", "/ollama/api/delete/0", json=body).status_code == 200
    assert "pirate:latest" not in _names(open_webui)


def test_a_model_is_pulled_and_deleted(open_webui: httpx2.Client) -> None:
    pulled = open_webui.post("/ollama/api/pull", json={"model": f"hf.co/{REPO}"})
    assert json.loads(pulled.text.splitlines()[-1]) == {"status": "success"}, pulled.text
    (name,) = _names(open_webui) - {MODEL}
    assert open_webui.request("DELETE", "/ollama/api/delete/0", json={"model": name}).status_code == 200
    assert _names(open_webui) == {MODEL}


def _names(client: httpx2.Client) -> set[str]:
    """Open WebUI keeps the list of its last question for a second."""
    models: Any = client.get("/ollama/api/tags/0").json()["models"]
    return {model["name"] for model in models}


@contextmanager
def _running(folder: Path, server: str) -> Generator[str]:
    """Open WebUI's URL, once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    url = f"http://127.0.0.1:{port}"
    settings = {
        "DATA_DIR": str(folder),
        "OLLAMA_BASE_URL": server,
        "OPENAI_API_BASE_URL": f"{server}/v1",
        "OPENAI_API_KEY": "none",
        "RAG_EMBEDDING_ENGINE": "ollama",
        "BYPASS_EMBEDDING_AND_RETRIEVAL": "True",
        "WEBUI_AUTH": "False",
        "WEBUI_SECRET_KEY": "x",
        "OFFLINE_MODE": "True",
        "HF_HUB_OFFLINE": "1",
        "ANONYMIZED_TELEMETRY": "False",
    }
    command = [PROGRAM, "serve", "--host", "127.0.0.1", "--port", port]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=os.environ | settings, cwd=folder, stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or _answers(url), 300)
        assert process.poll() is None, (folder / "log").read_text()[-4000:]
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health").status_code == 200
    except httpx2.TransportError:
        return False
