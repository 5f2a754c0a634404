"""Recipes: complete with and without a key, and never with the key itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from jan_serve.editors.recipe import ServerFacts
from jan_serve.editors.recipes import RECIPES
from tests.unit.editors.support import CHAT, FOLDERS, facts, parsed


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_contains_the_address(name: str) -> None:
    recipe = RECIPES[name](facts(), FOLDERS)
    text = "\n".join(recipe.steps) + (recipe.change.merge("") if recipe.change else "")
    assert facts().url in text
    if recipe.change is not None:
        text = recipe.change.merge("")
        assert recipe.change.merge(text) == text


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_place_for_the_key(name: str) -> None:
    recipe = RECIPES[name](facts(needs_key=True), FOLDERS)
    text = "\n".join(recipe.steps) + (recipe.change.merge("") if recipe.change else "")
    assert "key" in text.casefold()
    without_key = text.casefold().replace('"auth": "none"', "")  # of Muse, which sends no key
    assert re.search(r"\bnone\b(?! of)", without_key) is None


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_knows_whether_it_contains_the_context(name: str) -> None:
    def text(n_ctx: int) -> str:
        model = replace(CHAT, n_ctx=n_ctx)
        recipe = RECIPES[name](ServerFacts("http://127.0.0.1:1337", False, (model,), model), FOLDERS)
        return "\n".join(recipe.steps) + (recipe.change.merge("") if recipe.change else "")

    assert (text(8192) != text(16384)) == RECIPES[name](facts(), FOLDERS).has_context


def test_continue() -> None:
    content = parsed("continue")
    assert [model["name"] for model in content["models"]] == [
        "jan-serve org/chat:Q4",
        "jan-serve small",
        "jan-serve embed",
    ]
    assert content["models"][0]["defaultCompletionOptions"] == {"contextLength": 8192, "maxTokens": 2048}
    assert content["models"][2]["roles"] == ["embed"]
    assert parsed("continue", needs_key=True)["models"][0]["apiKey"] == "${{ secrets.JAN_SERVE_API_KEY }}"


def test_zed() -> None:
    provider = parsed("zed")["language_models"]["openai_compatible"]["jan-serve"]
    assert provider["api_url"] == "http://127.0.0.1:1337/v1"
    models = provider["available_models"]
    assert [model["max_tokens"] for model in models] == [8192, 4096]
    assert [model["capabilities"]["images"] for model in models] == [True, False]


def test_vscode() -> None:
    (provider,) = parsed("vscode")
    assert [model["vision"] for model in provider["models"]] == [True, False]
    first = provider["models"][0]
    assert first["maxInputTokens"] + first["maxOutputTokens"] == 8192
    assert first["url"] == "http://127.0.0.1:1337/v1/chat/completions"


def test_opencode() -> None:
    content = parsed("opencode", needs_key=True)
    assert content["$schema"] == "https://opencode.ai/config.json"
    provider = content["provider"]["jan-serve"]
    assert provider["options"]["apiKey"] == "{env:JAN_SERVE_API_KEY}"
    assert list(provider["models"]) == ["org/chat:Q4", "small"]
    assert "limit" not in provider["models"]["small"]
    seeing, blind = provider["models"].values()
    assert (seeing["attachment"], "attachment" in blind) == (True, False)
    assert seeing["modalities"] == {"input": ["text", "image"], "output": ["text"]}


def test_codex() -> None:
    assert parsed("codex", needs_key=True) == {
        "model": "org/chat:Q4",
        "model_provider": "jan-serve",
        "model_context_window": 8192,
        "model_providers": {
            "jan-serve": {
                "name": "jan-serve",
                "base_url": "http://127.0.0.1:1337/v1",
                "wire_api": "responses",
                "env_key": "JAN_SERVE_API_KEY",
                "http_headers": {"x-jan-serve-stop-loops": "end"},
            }
        },
    }
    recipe = RECIPES["codex"](facts(), FOLDERS)
    assert recipe.change is not None
    assert recipe.change.path == Path("/h/.codex/jan-serve.config.toml")


def test_the_codex_app_reads_the_file_without_a_profile() -> None:
    change = RECIPES["codex-app"](facts(), FOLDERS).change
    assert change is not None
    assert change.path == Path("/h/.codex/config.toml")
    assert parsed("codex-app") == parsed("codex")


def test_cline() -> None:
    document = parsed("cline")
    settings = document["providers"]["openai-compatible"]["settings"]
    assert settings == {
        "provider": "openai-compatible",
        "model": "org/chat:Q4",
        "baseUrl": "http://127.0.0.1:1337/v1",
        "contextWindow": 8192,
        "maxTokens": 2048,
        "apiKey": "none",
    }
    assert (document["version"], document["lastUsedProvider"]) == (1, "openai-compatible")
    assert "apiKey" not in parsed("cline", needs_key=True)["providers"]["openai-compatible"]["settings"]


def test_aider() -> None:
    assert parsed("aider") == {
        "openai-api-base": "http://127.0.0.1:1337/v1",
        "model": "openai/org/chat:Q4",
        "openai-api-key": "none",
    }
    assert "openai-api-key" not in parsed("aider", needs_key=True)


def test_claude() -> None:
    recipe = RECIPES["claude"](facts(), FOLDERS)
    assert recipe.change is not None
    assert recipe.change.path == Path("/h/.claude/jan-serve.settings.json")
    assert recipe.aliases == ("opus", "sonnet", "haiku", "claude")
    environment = parsed("claude")["env"]
    assert environment["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1337"
    assert environment["ANTHROPIC_AUTH_TOKEN"] == "none"
    assert environment["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "8192"
    assert environment["CLAUDE_CODE_ATTRIBUTION_HEADER"] == "0"
    assert environment["CLAUDE_CODE_TOTAL_TOKENS_REMINDER"] == "off"
    models = {value for name, value in environment.items() if name.endswith("_MODEL")}
    assert models == {"org/chat:Q4"}
    assert "ANTHROPIC_AUTH_TOKEN" not in parsed("claude", needs_key=True)["env"]
    assert json.loads(recipe.change.merge('{"model": "opus", "env": {"A": "1"}}'))["env"]["A"] == "1"
