"""Connection recipes: for each program, the steps for the user and the change to its settings file.
Formats: the programs' documentation, listed in docs/clients.md."""

from __future__ import annotations

from typing import Any, Final

from jan_serve.editors.agent_recipes import AGENT_RECIPES
from jan_serve.editors.merging import (
    OPENAI_COMPATIBLE,
    Named,
    json_change,
    set_models,
    set_provider,
    set_table,
    set_value,
    set_values,
    yaml_change,
)
from jan_serve.editors.ollama_recipes import OLLAMA_RECIPES
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
    told,
)

CLAUDE_ALIASES: Final = ("opus", "sonnet", "haiku", "claude")
"""The families of Claude's names, and the alias for all others."""


def _continue(facts: ServerFacts, folders: Folders) -> Recipe:
    key = f"${{{{ secrets.{KEY_VARIABLE} }}}}" if facts.needs_key else NO_KEY

    def entry(model: EditorModel, roles: list[str]) -> dict[str, Any]:
        content: dict[str, Any] = {
            "name": f"{PROVIDER} {model.name}",
            "provider": "openai",
            "model": model.name,
            "apiBase": facts.base_url,
            "apiKey": key,
            "roles": roles,
            "requestOptions": {"headers": AGENT_HEADERS},
        }
        if model.n_ctx is not None:
            content["defaultCompletionOptions"] = {"contextLength": model.n_ctx, "maxTokens": model.n_output}
        return content

    entries = [entry(model, ["chat", "edit", "apply"]) for model in facts.chat_models]
    entries += [entry(model, ["embed"]) for model in facts.embedding_models]
    secret = (f"Put the key as {KEY_VARIABLE}=… into ~/.continue/.env.",) if facts.needs_key else ()
    return Recipe(
        "Continue",
        (*secret, "Choose the model in Continue's list of models."),
        Change(
            folders.home / ".continue/config.yaml",
            lambda text: set_models(text, entries, prefix=f"{PROVIDER} "),
        ),
    )


def _cline(facts: ServerFacts, folders: Folders) -> Recipe:
    settings: dict[str, Any] = {
        "provider": OPENAI_COMPATIBLE,
        "model": facts.model.name,
        "baseUrl": facts.base_url,
    }
    if facts.model.n_ctx is not None:
        settings |= {"contextWindow": facts.model.n_ctx, "maxTokens": facts.model.n_output}
    if not facts.needs_key:
        settings["apiKey"] = NO_KEY
    key = "YOUR-KEY" if facts.needs_key else NO_KEY
    secret = (
        ("Enter the server's key in the extension, or set OPENAI_API_KEY to it for the command line.",)
        if facts.needs_key
        else ()
    )
    return Recipe(
        "Cline",
        (
            *secret,
            f'On the command line: cline -P {OPENAI_COMPATIBLE} "your task"',
            "If the extension does not read this file: Settings, API Provider: OpenAI Compatible,"
            f" Base URL {facts.base_url}, API Key {key}, Model ID {facts.model.name}.",
            *(() if facts.model.n_ctx is None else (f"Context Window Size: {facts.model.n_ctx}",)),
        ),
        Change(
            folders.home / ".cline/data/settings/providers.json", lambda text: set_provider(text, settings)
        ),
    )


def _zed(facts: ServerFacts, folders: Folders) -> Recipe:
    models = [
        {
            "name": model.name,
            "display_name": model.name,
            "max_tokens": model.n_ctx or 4096,
            "max_output_tokens": model.n_output or 1024,
            "capabilities": {
                "tools": True,
                "images": model.sees,
                "parallel_tool_calls": True,
                "prompt_cache_key": False,
            },
        }
        for model in facts.chat_models
    ]
    value = {"api_url": facts.base_url, "available_models": models}
    key = "the server's key" if facts.needs_key else "any text"
    return Recipe(
        "Zed",
        (
            f"Zed requires a key: start it with {KEY_VARIABLE} set to {key}, or enter it in Settings, LLM Providers.",
            f"Choose {facts.model.name} in the agent panel.",
            f"Its Ollama provider needs no list of models: language_models.ollama.api_url {facts.url}.",
        ),
        json_change(
            folders.zed / "settings.json", (("language_models", "openai_compatible", PROVIDER), value)
        ),
    )


def _vscode(facts: ServerFacts, folders: Folders) -> Recipe:
    models = [
        {
            "id": model.name,
            "name": model.name,
            "url": f"{facts.base_url}/chat/completions",
            "toolCalling": True,
            "vision": model.sees,
            # VS Code uses the sum of these two as the context.
            "maxInputTokens": (model.n_ctx or 4096) - (model.n_output or 1024),
            "maxOutputTokens": model.n_output or 1024,
        }
        for model in facts.chat_models
    ]
    value = {
        "name": PROVIDER,
        "vendor": "customendpoint",
        "apiKey": "YOUR-KEY" if facts.needs_key else NO_KEY,
        "apiType": "chat-completions",
        "models": models,
    }
    secret = (
        ("Enter the key with Chat: Manage Language Models, which stores it in the keychain.",)
        if facts.needs_key
        else ()
    )
    return Recipe(
        "VS Code (chat with a custom endpoint, 1.122 and newer)",
        (*secret, "Choose the model in the chat view's list of models."),
        json_change(folders.code / "chatLanguageModels.json", ((Named("name", PROVIDER),), value)),
    )


def _opencode(facts: ServerFacts, folders: Folders) -> Recipe:
    options: dict[str, Any] = {"baseURL": facts.base_url, "headers": AGENT_HEADERS}
    if facts.needs_key:
        options["apiKey"] = f"{{env:{KEY_VARIABLE}}}"
    models: dict[str, Any] = {}
    for model in facts.chat_models:
        models[model.name] = {"name": model.name, "tool_call": True}
        if model.sees:
            modalities = {"input": ["text", "image"], "output": ["text"]}
            models[model.name] |= {"attachment": True, "modalities": modalities}
        if model.n_ctx is not None:
            models[model.name]["limit"] = {"context": model.n_ctx, "output": model.n_output}
    value = {"npm": "@ai-sdk/openai-compatible", "name": PROVIDER, "options": options, "models": models}

    def merge(text: str) -> str:
        text = text or '{\n  "$schema": "https://opencode.ai/config.json"\n}\n'
        return set_value(text, ("provider", PROVIDER), value)

    steps = (*facts.key_steps, f"opencode --model {PROVIDER}/{facts.model.name}")
    return Recipe("opencode", steps, Change(folders.config / "opencode/opencode.json", merge))


def _codex(facts: ServerFacts, folders: Folders) -> Recipe:
    return Recipe(
        "Codex (0.134 and newer)",
        (*facts.key_steps, f"codex --profile {PROVIDER}"),
        # A separate profile file leaves the defaults of Codex unchanged.
        _codex_change(facts, folders, f"{PROVIDER}.config.toml"),
    )


def _codex_app(facts: ServerFacts, folders: Folders) -> Recipe:
    """The desktop application and the editor extension read no profiles."""
    return Recipe(
        "Codex app, Codex in an editor",
        (
            *facts.key_steps,
            "Restart it. Every Codex then uses this server, until model_provider is taken out of the file.",
        ),
        _codex_change(facts, folders, "config.toml"),
    )


def _codex_change(facts: ServerFacts, folders: Folders, name: str) -> Change:
    provider: dict[str, Any] = {"name": PROVIDER, "base_url": facts.base_url, "wire_api": "responses"}
    if facts.needs_key:
        provider["env_key"] = KEY_VARIABLE
    provider["http_headers"] = AGENT_HEADERS
    values: dict[str, Any] = {"model": facts.model.name, "model_provider": PROVIDER}
    if facts.model.n_ctx is not None:
        values["model_context_window"] = facts.model.n_ctx

    def merge(text: str) -> str:
        return set_table(set_values(text, values), ("model_providers", PROVIDER), provider)

    return Change(folders.home / ".codex" / name, merge)


def _claude(facts: ServerFacts, folders: Folders) -> Recipe:
    model = facts.model
    names = ("MODEL", "DEFAULT_OPUS_MODEL", "DEFAULT_SONNET_MODEL", "DEFAULT_HAIKU_MODEL")
    environment = {
        "ANTHROPIC_BASE_URL": facts.url,
        **{f"ANTHROPIC_{name}": model.name for name in names},
        "CLAUDE_CODE_SUBAGENT_MODEL": model.name,
        # What changes from turn to turn within the prompt ends the cached prefix there.
        "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
        "CLAUDE_CODE_TOTAL_TOKENS_REMINDER": "off",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ANTHROPIC_CUSTOM_HEADERS": "\n".join(f"{name}: {value}" for name, value in AGENT_HEADERS.items()),
    }
    if model.n_ctx is not None:
        environment["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(model.n_ctx)
    if not facts.needs_key:
        environment["ANTHROPIC_AUTH_TOKEN"] = NO_KEY
    # A file of its own leaves the defaults of Claude Code unchanged.
    path = folders.home / ".claude" / f"{PROVIDER}.settings.json"
    secret = ("Set ANTHROPIC_AUTH_TOKEN to the server's key.",) if facts.needs_key else ()
    changes = ((("env", name), value) for name, value in environment.items())
    return Recipe(
        "Claude Code",
        (*secret, f"claude --settings {path.as_posix()}", "Or, without a file: jan-serve launch claude"),
        json_change(path, *changes),
        aliases=CLAUDE_ALIASES,
    )


def _aider(facts: ServerFacts, folders: Folders) -> Recipe:
    values = {"openai-api-base": facts.base_url, "model": f"openai/{facts.model.name}"}
    if not facts.needs_key:
        values["openai-api-key"] = NO_KEY
    secret = ("Set OPENAI_API_KEY to the server's key.",) if facts.needs_key else ()
    return Recipe(
        "aider",
        (*secret, "Start aider in a repository."),
        yaml_change(folders.home / ".aider.conf.yml", values),
        has_context=False,
    )


RECIPES: Final[dict[str, Make]] = {
    "continue": _continue,
    "cline": _cline,
    "zed": _zed,
    "vscode": _vscode,
    "jetbrains": told(
        "JetBrains AI Assistant",
        "Settings, Tools, AI Assistant, Providers & API keys.",
        "Third-party AI providers: OpenAI-compatible.",
        "URL: {base_url}",
        "API Key: {key}",
        "Tool calling: on. Then Test Connection, and choose models for the features.",
    ),
    "opencode": _opencode,
    "codex": _codex,
    "codex-app": _codex_app,
    "claude": _claude,
    "aider": _aider,
    "open-webui": told(
        "Open WebUI",
        "Start it on the same machine: OPENAI_API_BASE_URL={base_url} OPENAI_API_KEY={key} ENABLE_OLLAMA_API=False"
        " open-webui serve",
        "If it is running already: Admin Settings, Connections, OpenAI API: URL {base_url}, key {key}.",
        "In a container, 127.0.0.1 is the container itself: use --network=host (Linux).",
    ),
    **AGENT_RECIPES,
    **OLLAMA_RECIPES,
}
