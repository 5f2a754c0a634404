"""The exact calls of programs that cannot run here, answered field by field as they read the answers.

Sources: VS Code's Copilot (ollamaProvider.ts), Zed (crates/ollama), Home Assistant (components/ollama).
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.contract.ollama.support import HERMES
from tests.contract.ollama.test_models import gguf
from tests.support.engine.fake_vocabulary import THINKING_TEMPLATE
from tests.support.servers.managed import Managed, add_model, managed_app

pytestmark = [pytest.mark.anyio, pytest.mark.integration]


@pytest.fixture
async def managed(tmp_path: Path) -> AsyncGenerator[Managed]:
    add_model(tmp_path, "assist", gguf(template=HERMES))
    add_model(tmp_path, "thinks", gguf(template=THINKING_TEMPLATE))
    async with managed_app(tmp_path) as managed:
        await managed.library.start_reading()
        yield managed


async def test_copilot(managed: Managed) -> None:
    """Version, list, one /api/show a model; then chats on OpenAI's route with an empty key."""
    agent = {"user-agent": "GitHubCopilotChat/0.37.1"}
    version = (await managed.client.get("/api/version", headers=agent)).json()["version"]
    assert [int(part) for part in version.split(".")] >= [0, 6, 4]
    listed = (await managed.client.get("/api/tags", headers=agent)).json()["models"]
    models = [each["model"] for each in listed]
    assert "assist:latest" in models
    for name in models:
        shown = (await managed.client.post("/api/show", json={"model": name}, headers=agent)).json()
        info = shown["model_info"]
        assert info["general.basename"] == name
        context = info[f"{info['general.architecture']}.context_length"]
        assert isinstance(context, int)
        assert ("vision" in shown["capabilities"]) == (name == "jan-tiny:latest")
        if name == "assist:latest":
            assert "tools" in shown["capabilities"]
            output = context // 2 if context < 4096 else 4096
            assert context - output > 0
    chat = {
        "model": "assist:latest",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "!say hi"}],
        "temperature": 0.1, "top_p": 1, "max_tokens": 4096, "n": 1, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    answer = await managed.client.post(
        "/v1/chat/completions", json=chat, headers={**agent, "authorization": "Bearer "}
    )
    assert answer.status_code == 200
    chunks = [json.loads(line[6:]) for line in answer.text.split("\n") if line.startswith("data: {")]
    text = "".join(each["choices"][0]["delta"].get("content") or "" for each in chunks if each["choices"])
    assert text == "hi"


def zed_model(row: dict[str, Any]) -> None:
    """LocalModelListing: every field is required."""
    assert isinstance(row["name"], str)
    datetime.fromisoformat(row["modified_at"])
    assert isinstance(row["size"], int)
    assert isinstance(row["digest"], str)
    details = row["details"]
    for field in ("format", "family", "parameter_size", "quantization_level"):
        assert isinstance(details[field], str)
    assert isinstance(details["families"], list)


async def test_zed(managed: Managed) -> None:
    for row in (await managed.client.get("/api/tags")).json()["models"]:
        zed_model(row)
    shown = (await managed.client.post("/api/show", json={"model": "thinks:latest"})).json()
    assert shown["capabilities"] == ["completion", "tools", "thinking"]
    assert shown["model_info"]["general.architecture"] == "llama"
    tool: Any = {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "d",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    request: Any = {
        "model": "thinks:latest",
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "look", "images": None},
            {"role": "assistant", "content": "", "thinking": None, "images": None, "tool_calls": [
                {"id": "call_1", "function": {"name": "read_file", "arguments": {"path": "a"}}}]},
            {"role": "tool", "tool_name": "read_file", "content": "!say done"},
        ],
        "stream": True, "keep_alive": -1, "think": True, "tools": [tool],
        "options": {"num_ctx": 4096, "num_predict": None, "stop": ["<eot>"], "temperature": 1.0, "top_p": None},
    }  # fmt: skip
    answer = await managed.client.post("/api/chat", json=request)
    assert answer.status_code == 200, answer.text
    lines = [json.loads(line) for line in answer.text.splitlines()]
    for line in lines:
        # ChatResponseDelta: these are required.
        assert {"model", "created_at", "message", "done"} <= line.keys()
        assert (line["message"]["role"], type(line["message"]["content"])) == ("assistant", str)
    assert {"prompt_eval_count", "eval_count", "done_reason"} <= lines[-1].keys()
    assert "".join(line["message"]["content"] for line in lines) == "done"


HA_TOOL = {
    "type": "function",
    "function": {
        "name": "HassTurnOn",
        "description": "Turns on a device",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    },
}
HA_CALL = '<tool_call>\n{"name": "HassTurnOn", "arguments": {"name": "lamp"}}\n</tool_call>'


async def ha_chat(managed: Managed, messages: list[Any], **more: Any) -> list[Any]:
    body = {
        "model": "assist:latest",
        "messages": messages,
        "tools": [HA_TOOL],
        "stream": True,
        "keep_alive": "300s",
        "options": {"num_ctx": 8192},
        "think": False,
        **more,
    }
    answer = await managed.client.post("/api/chat", json=body)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_home_assistant(managed: Managed) -> None:
    """Its results of tools carry neither name nor id."""
    listed = (await managed.client.get("/api/tags")).json()["models"]
    assert {each["model"] for each in listed} >= {"assist:latest", "thinks:latest"}
    missing = await managed.client.post("/api/pull", json={"model": "llama3.2:latest", "stream": False})
    assert (missing.status_code, list(missing.json())) == (404, ["error"])
    messages: list[Any] = [
        {"role": "system", "content": "You are a voice assistant."},
        {"role": "user", "content": f"!say {json.dumps(HA_CALL)}"},
    ]
    for keep_alive in ("300s", -1):
        lines = await ha_chat(managed, messages, keep_alive=keep_alive)
        [call] = [call for line in lines for call in line["message"].get("tool_calls", ())]
        assert (call["function"]["name"], call["function"]["arguments"]) == ("HassTurnOn", {"name": "lamp"})
        assert lines[-1]["done"] is True
    messages += [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "HassTurnOn", "arguments": {}}}],
        },
        {"role": "tool", "content": '{"speech": {}}'},
        {"role": "user", "content": "!say The lamp is on."},
    ]
    messages[1] = {"role": "user", "content": "turn it on"}
    lines = await ha_chat(managed, messages)
    assert "".join(line["message"]["content"] for line in lines) == "The lamp is on."
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    lines = await ha_chat(managed, messages, format=schema, tools=None)
    assert "error" not in lines[-1]
    [loaded] = (await managed.client.get("/api/ps")).json()["models"]
    assert loaded["model"] == "assist:latest"
