"""Recipes of terminal agents: the entry of the server, and what else stays in their files."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
import yaml

from jan_serve.editors.agent_recipes import AGENT_RECIPES
from tests.unit.editors.support import FOLDERS, facts, parsed

URL = "http://127.0.0.1:1337/v1"
SIZES = {"contextWindow": 8192, "maxTokens": 2048}


def merged(name: str, text: str, *, needs_key: bool = False) -> str:
    change = AGENT_RECIPES[name](facts(needs_key=needs_key), FOLDERS).change
    assert change is not None
    return change.merge(text)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("pi", ("providers", "jan-serve")),
        ("omp", ("providers", "jan-serve")),
        ("openclaw", ("models", "providers", "jan-serve")),
    ],
)
def test_agents_of_pis_kind_get_all_models(name: str, place: tuple[str, ...]) -> None:
    for needs_key in (False, True):
        provider: Any = parsed(name, needs_key=needs_key)
        for step in place:
            provider = provider[step]
        assert provider["baseUrl"] == URL
        assert ("JAN_SERVE_API_KEY" in str(provider.get("apiKey"))) is needs_key
        first, second = provider["models"]
        assert (first["id"], first["input"], second["id"], second["input"]) == (
            "org/chat:Q4",
            ["text", "image"],
            "small",
            ["text"],
        )
        assert SIZES.items() <= first.items() and not SIZES.keys() & second.keys()


def test_openclaw_begins_with_the_model() -> None:
    assert parsed("openclaw")["agents"]["defaults"]["model"]["primary"] == "jan-serve/org/chat:Q4"


def test_qwen_code() -> None:
    document = parsed("qwen")
    first, second = document["modelProviders"]["openai"]
    assert (first["id"], first["baseUrl"], first["envKey"]) == ("org/chat:Q4", URL, "JAN_SERVE_API_KEY")
    assert first["generationConfig"]["contextWindowSize"] == 8192
    assert "contextWindowSize" not in second["generationConfig"]
    assert document["security"]["auth"]["selectedType"] == "openai"
    assert (document["model"]["name"], document["env"]) == ("org/chat:Q4", {"JAN_SERVE_API_KEY": "none"})
    assert "env" not in parsed("qwen", needs_key=True)


def test_kimi_code() -> None:
    document = parsed("kimi")
    assert document["default_model"] == "jan-serve"
    assert document["providers"]["jan-serve"] == {"type": "openai", "base_url": URL, "api_key": "none"}
    assert document["models"]["jan-serve"]["max_context_size"] == 8192
    with_key = parsed("kimi", needs_key=True)["providers"]["jan-serve"]
    assert (with_key["api_key_env"], "api_key" in with_key) == ("JAN_SERVE_API_KEY", False)


def test_droid_keeps_the_other_models() -> None:
    other = {"model": "m", "displayName": "Mine", "apiKey": "x"}
    models = json.loads(merged("droid", json.dumps({"customModels": [other]})))["customModels"]
    assert other in models
    [ours] = [model for model in models if model["displayName"] == "jan-serve"]
    assert (ours["baseUrl"], ours["provider"]) == (URL, "generic-chat-completion-api")
    assert "JAN_SERVE_API_KEY" in merged("droid", "", needs_key=True)


def test_hermes_keeps_what_else_is_said_of_the_model() -> None:
    text = "# mine\nmodel:\n  provider: nous # was\n  temperature: 1\ntools: {}\n"
    document = yaml.safe_load(merged("hermes", text))
    assert document == {
        "model": {
            "provider": "custom",
            "temperature": 1,
            "base_url": URL,
            "default": "org/chat:Q4",
            "context_length": 8192,
        },
        "tools": {},
    }
    assert "# mine" in merged("hermes", text)


def test_muse_has_a_row_of_each_model() -> None:
    document = parsed("muse")
    assert document["endpoint_transport"] == {"base_url": URL, "auth": "none"}
    first, second = document["model_catalog"]
    assert document["model"] == first["model_id"] == "org/chat:Q4"
    assert (first["is_default"], first["context_limit"], first["output_limit"]) == (True, 8192, 2048)
    assert (second["is_default"], second["context_limit"]) == (False, 32_768)
    assert {row["provider_id"] for row in (first, second)} == {document["provider"]}
    assert "--open-network" in " ".join(AGENT_RECIPES["muse"](facts(needs_key=True), FOLDERS).steps)


def test_deepseek_harness_keeps_other_providers() -> None:
    theirs = {"agent-default-model": {"x": 1}, "llm-pi-ai": {"providers": {"other": {"api": "a"}}}, "ui": {}}
    document = yaml.safe_load(merged("dsh", yaml.safe_dump(theirs)))
    assert document["agent-default-model"] == {"x": 1, "provider": "jan-serve", "model": "org/chat:Q4"}
    providers = document["llm-pi-ai"]["providers"]
    assert providers["other"] == {"api": "a"} and document["ui"] == {}
    ours = providers["jan-serve"]
    assert (ours["baseURL"], ours["apiKeyEnv"], len(ours["models"])) == (URL, "JAN_SERVE_API_KEY", 2)


@pytest.mark.parametrize("name", ["omp", "kimi"])
def test_a_second_writing_leaves_nothing_of_the_first_entry(name: str) -> None:
    reader: Any = yaml.safe_load if name == "omp" else tomllib.loads
    assert reader(merged(name, merged(name, "", needs_key=True))) == parsed(name)
