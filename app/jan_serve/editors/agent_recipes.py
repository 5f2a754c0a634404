"""Recipes of terminal agents that take any server of OpenAI's API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from jan_serve.editors.merging import Named, Step, json_change, set_table, set_values, yaml_change
from jan_serve.editors.recipe import (
    AGENT_HEADERS,
    KEY_VARIABLE,
    NO_KEY,
    PROVIDER,
    Change,
    EditorModel,
    Folders,
    Make,
    Recipe,
    ServerFacts,
    steps_without_key,
    told,
)


def _models(facts: ServerFacts) -> list[dict[str, Any]]:
    """Models as Pi lists them, and the agents that are made of it."""
    return [
        {
            "id": model.name,
            "name": model.name,
            "input": ["text", "image"] if model.sees else ["text"],
            **_sizes(model, "contextWindow", "maxTokens"),
        }
        for model in facts.chat_models
    ]


def _sizes(model: EditorModel, context: str, output: str) -> dict[str, Any]:
    return {} if model.n_ctx is None else {context: model.n_ctx, output: model.n_output}


def _pi(facts: ServerFacts, folders: Folders) -> Recipe:
    value = {
        "baseUrl": facts.base_url,
        "api": "openai-completions",
        "apiKey": KEY_VARIABLE if facts.needs_key else NO_KEY,
        "headers": AGENT_HEADERS,
        "models": _models(facts),
    }
    steps = (*facts.key_steps, f"pi --provider {PROVIDER} --model {facts.model.name}")
    change = json_change(folders.home / ".pi/agent/models.json", (("providers", PROVIDER), value))
    return Recipe("Pi", steps, change)


def _omp(facts: ServerFacts, folders: Folders) -> Recipe:
    value = {
        "baseUrl": facts.base_url,
        "api": "openai-responses",
        **({"apiKey": KEY_VARIABLE} if facts.needs_key else {"auth": NO_KEY}),
        "models": _models(facts),
    }
    steps = (*facts.key_steps, f"omp --model {PROVIDER}/{facts.model.name}")
    return Recipe(
        "OMP", steps, yaml_change(folders.home / ".omp/agent/models.yml", {"providers": {PROVIDER: value}})
    )


def _openclaw(facts: ServerFacts, folders: Folders) -> Recipe:
    value = {
        "baseUrl": facts.base_url,
        "api": "openai-completions",
        "apiKey": f"${{{KEY_VARIABLE}}}" if facts.needs_key else NO_KEY,
        "models": _models(facts),
    }
    change = json_change(
        folders.home / ".openclaw/openclaw.json",
        (("models", "providers", PROVIDER), value),
        (("agents", "defaults", "model", "primary"), f"{PROVIDER}/{facts.model.name}"),
    )
    return Recipe("OpenClaw", (*facts.key_steps, "Restart its gateway: openclaw gateway restart"), change)


def _qwen(facts: ServerFacts, folders: Folders) -> Recipe:
    changes: list[tuple[Sequence[Step], Any]] = []
    for model in facts.chat_models:
        sized = {"contextWindowSize": model.n_ctx} if model.n_ctx is not None else {}
        entry = {
            "id": model.name,
            "name": f"{PROVIDER} {model.name}",
            "envKey": KEY_VARIABLE,
            "baseUrl": facts.base_url,
            "generationConfig": {"customHeaders": AGENT_HEADERS, **sized},
        }
        changes.append((("modelProviders", "openai", Named("id", model.name)), entry))
    if not facts.needs_key:
        changes.append((("env", KEY_VARIABLE), NO_KEY))
    changes.append((("security", "auth", "selectedType"), "openai"))
    changes.append((("model", "name"), facts.model.name))
    steps = (*facts.key_steps, "Start it: qwen. The command /model chooses another model.")
    return Recipe("Qwen Code", steps, json_change(folders.home / ".qwen/settings.json", *changes))


def _kimi(facts: ServerFacts, folders: Folders) -> Recipe:
    key = {"api_key_env": KEY_VARIABLE} if facts.needs_key else {"api_key": NO_KEY}
    provider = {"type": "openai", "base_url": facts.base_url, **key}
    model = {
        "provider": PROVIDER,
        "model": facts.model.name,
        "max_context_size": facts.model.n_ctx or 32_768,
        "capabilities": ["tool_use", *(["image_in"] if facts.model.sees else [])],
    }

    def merge(text: str) -> str:
        text = set_table(set_values(text, {"default_model": PROVIDER}), ("providers", PROVIDER), provider)
        return set_table(text, ("models", PROVIDER), model)

    change = Change(folders.home / ".kimi-code/config.toml", merge)
    return Recipe("Kimi Code", (*facts.key_steps, "Start it: kimi"), change)


def _droid(facts: ServerFacts, folders: Folders) -> Recipe:
    value = {
        "model": facts.model.name,
        "displayName": PROVIDER,
        "baseUrl": facts.base_url,
        "apiKey": f"${{{KEY_VARIABLE}}}" if facts.needs_key else NO_KEY,
        "provider": "generic-chat-completion-api",
        "maxOutputTokens": facts.model.n_output or 8_192,
    }
    steps = (*facts.key_steps, f"Start droid, and choose {PROVIDER} with /model.")
    path = ("customModels", Named("displayName", PROVIDER))
    return Recipe("Droid", steps, json_change(folders.home / ".factory/settings.json", (path, value)))


def _hermes(facts: ServerFacts, folders: Folders) -> Recipe:
    value: dict[str, Any] = {"provider": "custom", "base_url": facts.base_url, "default": facts.model.name}
    if facts.model.n_ctx is not None:
        value["context_length"] = facts.model.n_ctx
    secret = ("Put the key as OPENAI_API_KEY=… into ~/.hermes/.env.",) if facts.needs_key else ()
    change = yaml_change(folders.home / ".hermes/config.yaml", {"model": value})
    return Recipe("Hermes Agent", (*secret, "Start it: hermes"), change)


def _copilot_cli(facts: ServerFacts, folders: Folders) -> Recipe:
    key = "COPILOT_PROVIDER_API_KEY=YOUR-KEY " if facts.needs_key else ""
    variables = f"COPILOT_PROVIDER_BASE_URL={facts.base_url} {key}COPILOT_PROVIDER_WIRE_API=responses"
    return Recipe(
        "GitHub Copilot CLI", (f"{variables} copilot --model {facts.model.name}",), has_context=False
    )


def _muse(facts: ServerFacts, folders: Folders) -> Recipe:
    settings = {
        "provider": "meta",
        "model": facts.model.name,
        "endpoint_transport": {"base_url": facts.base_url, "auth": "none"},
        # It asks the server for a list of another form, and starts without it only if the file has one.
        "model_catalog": [_muse_model(model, place) for place, model in enumerate(facts.chat_models)],
    }
    steps = (
        *steps_without_key(facts, "127.0.0.1/32", "/v1/chat/completions", "/v1/responses"),
        "Start it: muse. All its requests go to this server until endpoint_transport is taken out of the file.",
    )
    changes = (((name,), value) for name, value in settings.items())
    return Recipe("Muse Code", steps, json_change(folders.config / "muse/settings.json", *changes))


def _muse_model(model: EditorModel, place: int) -> dict[str, Any]:
    context = model.n_ctx or 32_768
    return {
        "model_id": model.name,
        "provider_id": "meta",
        "profile_id": "tbh",
        "display_label": model.name,
        "visibility": "visible",
        "display_order": place,
        "is_default": place == 0,
        "context_limit": context,
        "output_limit": model.n_output or context // 4,
        "description": PROVIDER,
    }


def _dsh(facts: ServerFacts, folders: Folders) -> Recipe:
    provider = {
        "displayName": PROVIDER,
        "apiKeyEnv": KEY_VARIABLE,
        "api": "openai-completions",
        "baseURL": facts.base_url,
        "models": _models(facts),
    }
    settings = {
        "agent-default-model": {"provider": PROVIDER, "model": facts.model.name},
        "llm-pi-ai": {"providers": {PROVIDER: provider}},
    }
    key = "the server's key" if facts.needs_key else "any text"
    steps = (f"Set {KEY_VARIABLE} to {key}.", "Start it: dsh web")
    return Recipe("DeepSeek Harness", steps, yaml_change(folders.home / ".dsh/settings.yaml", settings))


AGENT_RECIPES: Final[dict[str, Make]] = {
    "pi": _pi,
    "omp": _omp,
    "openclaw": _openclaw,
    "qwen": _qwen,
    "kimi": _kimi,
    "droid": _droid,
    "hermes": _hermes,
    "poolside": told(
        "Poolside", "POOLSIDE_STANDALONE_BASE_URL={base_url} POOLSIDE_API_KEY={key} pool -m {model}"
    ),
    "copilot-cli": _copilot_cli,
    "muse": _muse,
    "dsh": _dsh,
    "claude-desktop": told(
        "Claude Desktop, inference by a gateway",
        "Help, Troubleshooting, Enable Developer Mode; then Developer, Configure Third-Party Inference: provider"
        " Gateway.",
        "Gateway base URL {url}, API key {secret}, auth scheme bearer.",
        "Restart it: {model} and the server's other models are in its list.",
    ),
}
