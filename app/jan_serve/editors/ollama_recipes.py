"""Recipes of programs that speak Ollama's API, and of two that cannot use a local server."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from jan_serve.editors.recipe import Change, Folders, Recipe, ServerFacts, steps_without_key
from jan_serve.editors.yaml_file import set_keys

_CONTAINER: Final = "host.docker.internal"


def _port(facts: ServerFacts) -> int:
    return urlsplit(facts.url).port or 80


def _beyond_loopback(facts: ServerFacts, *flags: str) -> str:
    key = "" if facts.needs_key else " --api-key KEY"
    return (
        f"{facts.url} is this machine alone. Start the server with --host 0.0.0.0{key}{''.join(flags)}, and let port"
        f" {_port(facts)} through the firewall for that network only."
    )


def _copilot(facts: ServerFacts, folders: Folders) -> Recipe:
    return Recipe(
        "GitHub Copilot in VS Code, Ollama provider",
        (
            *steps_without_key(facts, "127.0.0.1/32", "/v1/chat/completions"),
            f"Chat: Manage Language Models, Add Models, Ollama: endpoint {facts.url}. Older versions: setting"
            f" github.copilot.chat.byok.ollamaEndpoint, {facts.url}.",
            "Choose models in the list. It keeps what it learned of a model: add it again after a change of n_ctx.",
            "Agent mode offers models with tools. `jan-serve connect vscode` is the way with a key.",
        ),
        has_context=False,
    )


def _home_assistant(facts: ServerFacts, folders: Folders) -> Recipe:
    context = f"{facts.model.n_ctx}" if facts.model.n_ctx is not None else "the n_ctx of the model"
    return Recipe(
        "Home Assistant, integration Ollama",
        (
            _beyond_loopback(facts, " --open-network 192.168.1.0/24"),
            "Name your own network there. Without --open-network, enter the key in the integration if yours has the"
            " field: it is the only way in.",
            f"Settings, Devices & services, Add integration, Ollama: http://THIS-MACHINE:{_port(facts)}",
            f"Add a conversation agent: model {facts.model.name}, context window size {context}.",
            "Its address must be an IP address, or a name that --allowed-host lists.",
        ),
    )


def _n8n(facts: ServerFacts, folders: Folders) -> Recipe:
    key = "the server's key" if facts.needs_key else "empty"
    return Recipe(
        "n8n, Ollama credentials",
        (
            f"On the same machine: Base URL {facts.url}, API Key {key}.",
            f"In a container: Base URL http://{_CONTAINER}:{_port(facts)}. On Linux run it with"
            f" --add-host={_CONTAINER}:host-gateway.",
            _beyond_loopback(facts, f" --allowed-host {_CONTAINER}"),
            f"Ollama Chat Model: model {facts.model.name}.",
        ),
        has_context=False,
    )


def _raycast(facts: ServerFacts, folders: Folders) -> Recipe:
    return Recipe(
        "Raycast",
        (
            *steps_without_key(facts, "127.0.0.1/32"),
            f"Settings, AI, Local Models: Ollama Host {facts.url}, then Sync Models.",
            f"Choose {facts.model.name} in AI Chat.",
        ),
        has_context=False,
    )


def _goose(facts: ServerFacts, folders: Folders) -> Recipe:
    values: dict[str, Any] = {"GOOSE_MODEL": facts.model.name}
    if facts.needs_key:
        values |= {"GOOSE_PROVIDER": "openai", "OPENAI_HOST": facts.url}
        steps = ("Set OPENAI_API_KEY to the server's key, or enter it in `goose configure`.",)
    else:
        values |= {"GOOSE_PROVIDER": "ollama", "OLLAMA_HOST": facts.url}
        steps = ()
    return Recipe(
        "Goose",
        (*steps, "Start it: goose session"),
        Change(folders.config / "goose" / "config.yaml", lambda text: set_keys(text, values)),
        has_context=False,
    )


def _langchain(facts: ServerFacts, folders: Folders) -> Recipe:
    key = ', client_kwargs={"headers": {"Authorization": "Bearer YOUR-KEY"}}' if facts.needs_key else ""
    return Recipe(
        "LangChain, package langchain-ollama",
        (
            "from langchain_ollama import ChatOllama",
            f"chat = ChatOllama(model={json.dumps(facts.model.name)}, base_url={json.dumps(facts.url)}{key})",
            f"langchain-openai works too: base_url={facts.base_url}",
        ),
        has_context=False,
    )


def _cherry_studio(facts: ServerFacts, folders: Folders) -> Recipe:
    key = "the server's key" if facts.needs_key else "any text"
    return Recipe(
        "Cherry Studio",
        (
            f"Settings, Model Provider, Ollama: API Host {facts.url}, API Key {key}.",
            f"Manage adds the models that the server lists: {facts.model.name} and others.",
        ),
        has_context=False,
    )


def _obsidian(facts: ServerFacts, folders: Folders) -> Recipe:
    key = "the server's key" if facts.needs_key else "any text"
    return Recipe(
        "Obsidian: Copilot, Smart Connections and other plugins",
        (
            f"Copilot, Model, Add Model: Provider Ollama, Base URL {facts.url}, API Key {key}, Model"
            f" {facts.model.name}.",
            "Other plugins: provider Ollama and the same address.",
            "Obsidian's origin app://obsidian.md is allowed without a setting.",
        ),
        has_context=False,
    )


def _cursor(facts: ServerFacts, folders: Folders) -> Recipe:
    return Recipe(
        "Cursor (not possible with a local server)",
        (
            f"Cursor's own servers call the address of a model and refuse private ones: they cannot reach {facts.url}.",
            "It would need a public https address of this server, with a key: everything that you send would leave this"
            " machine. `jan-serve connect zed` or `vscode` keep it here.",
        ),
        has_context=False,
    )


def _windsurf(facts: ServerFacts, folders: Folders) -> Recipe:
    return Recipe(
        "Windsurf (not possible with a local server)",
        (
            f"Windsurf has no setting for the address of a model, so neither {facts.url} nor a key can be entered.",
            "`jan-serve connect zed`, `cline` or `continue` can.",
        ),
        has_context=False,
    )


OLLAMA_RECIPES: Final[dict[str, Callable[[ServerFacts, Folders], Recipe]]] = {
    "copilot": _copilot,
    "home-assistant": _home_assistant,
    "n8n": _n8n,
    "raycast": _raycast,
    "goose": _goose,
    "langchain": _langchain,
    "cherry-studio": _cherry_studio,
    "obsidian": _obsidian,
    "cursor": _cursor,
    "windsurf": _windsurf,
}
