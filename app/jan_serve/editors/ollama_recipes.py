"""Recipes of programs that speak Ollama's API, and of two that cannot use a local server."""

from __future__ import annotations

import json
from typing import Any, Final

from jan_serve.editors.merging import yaml_change
from jan_serve.editors.recipe import Folders, Make, Recipe, ServerFacts, told

_BEYOND: Final = (
    "{url} is this machine alone. Start the server with --host 0.0.0.0{more_key}FLAGS, and let port {port} through the"
    " firewall for that network only."
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
        yaml_change(folders.config / "goose/config.yaml", values),
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


OLLAMA_RECIPES: Final[dict[str, Make]] = {
    "copilot": told(
        "GitHub Copilot in VS Code, Ollama provider",
        ("127.0.0.1/32", "/v1/chat/completions"),
        "Chat: Manage Language Models, Add Models, Ollama: endpoint {url}. Older versions: setting"
        " github.copilot.chat.byok.ollamaEndpoint, {url}.",
        "Choose models in the list. It keeps what it learned of a model: add it again after a change of n_ctx.",
        "Agent mode offers models with tools. `jan-serve connect vscode` is the way with a key.",
    ),
    "home-assistant": told(
        "Home Assistant, integration Ollama",
        _BEYOND.replace("FLAGS", " --open-network 192.168.1.0/24"),
        "Name your own network there. Without --open-network, enter the key in the integration if yours has the"
        " field: it is the only way in.",
        "Settings, Devices & services, Add integration, Ollama: http://THIS-MACHINE:{port}",
        "Add a conversation agent: model {model}, context window size {context}.",
        "Its address must be an IP address, or a name that --allowed-host lists.",
        has_context=True,
    ),
    "n8n": told(
        "n8n, Ollama credentials",
        "On the same machine: Base URL {url}, API Key {own_key}.",
        "In a container: Base URL http://host.docker.internal:{port}. On Linux run it with"
        " --add-host=host.docker.internal:host-gateway.",
        _BEYOND.replace("FLAGS", " --allowed-host host.docker.internal"),
        "Ollama Chat Model: model {model}.",
    ),
    "raycast": told(
        "Raycast",
        ("127.0.0.1/32",),
        "Settings, AI, Local Models: Ollama Host {url}, then Sync Models.",
        "Choose {model} in AI Chat.",
    ),
    "goose": _goose,
    "langchain": _langchain,
    "cherry-studio": told(
        "Cherry Studio",
        "Settings, Model Provider, Ollama: API Host {url}, API Key {secret}.",
        "Manage adds the models that the server lists: {model} and others.",
    ),
    "obsidian": told(
        "Obsidian: Copilot, Smart Connections and other plugins",
        "Copilot, Model, Add Model: Provider Ollama, Base URL {url}, API Key {secret}, Model {model}.",
        "Other plugins: provider Ollama and the same address.",
        "Obsidian's origin app://obsidian.md is allowed without a setting.",
    ),
    "cursor": told(
        "Cursor (not possible with a local server)",
        "Cursor's own servers call the address of a model and refuse private ones: they cannot reach {url}.",
        "It would need a public https address of this server, with a key: everything that you send would leave this"
        " machine. `jan-serve connect zed` or `vscode` keep it here.",
    ),
    "windsurf": told(
        "Windsurf (not possible with a local server)",
        "Windsurf has no setting for the address of a model, so neither {url} nor a key can be entered.",
        "`jan-serve connect zed`, `cline` or `continue` can.",
    ),
}
