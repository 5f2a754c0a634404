"""How to start programs with this server: their command, arguments and environment. Pure.
Settings that need a file are those of the program's recipe, in a folder of the caller."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from jan_serve.editors.merging import OPENAI_COMPATIBLE
from jan_serve.editors.recipe import AGENT_HEADERS, KEY_VARIABLE, PROVIDER, ServerFacts


class Start(msgspec.Struct, frozen=True):
    """environment: added to the user's; an empty value hides one of theirs."""

    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = msgspec.field(default_factory=dict[str, str])


class Launch(msgspec.Struct, frozen=True):
    """command: its name on the path. n_ctx: tokens of context that it needs to be of use.
    start: from the facts, the server's key and the settings file of its recipe."""

    command: str
    n_ctx: int
    start: Callable[[ServerFacts, str, Path], Start]


def _claude(facts: ServerFacts, key: str, file: Path) -> Start:
    # An API key of the user's own would be sent to this server.
    return Start(
        ("--settings", str(file)),
        {"ANTHROPIC_BASE_URL": facts.url, "ANTHROPIC_AUTH_TOKEN": key, "ANTHROPIC_API_KEY": ""},
    )


def _codex(facts: ServerFacts, key: str, file: Path) -> Start:
    provider = f"model_providers.{PROVIDER}"
    values: dict[str, str | int] = {
        "model_provider": PROVIDER,
        f"{provider}.name": PROVIDER,
        f"{provider}.base_url": facts.base_url,
        f"{provider}.wire_api": "responses",
        f"{provider}.env_key": KEY_VARIABLE,
    }
    values |= {f"{provider}.http_headers.{name}": value for name, value in AGENT_HEADERS.items()}
    if facts.model.n_ctx is not None:
        values["model_context_window"] = facts.model.n_ctx
    options = (word for name, value in values.items() for word in ("-c", f"{name}={json.dumps(value)}"))
    return Start(("--model", facts.model.name, *options), {KEY_VARIABLE: key})


def _opencode(facts: ServerFacts, key: str, file: Path) -> Start:
    default = json.dumps({"model": f"{PROVIDER}/{facts.model.name}"})
    return Start((), {"OPENCODE_CONFIG": str(file), "OPENCODE_CONFIG_CONTENT": default, KEY_VARIABLE: key})


def _aider(facts: ServerFacts, key: str, file: Path) -> Start:
    return Start(
        ("--model", f"openai/{facts.model.name}"), {"OPENAI_API_BASE": facts.base_url, "OPENAI_API_KEY": key}
    )


def _continue(facts: ServerFacts, key: str, file: Path) -> Start:
    return Start(("--config", str(file)), {KEY_VARIABLE: key})


def _cline(facts: ServerFacts, key: str, file: Path) -> Start:
    folder = file.parents[2]  # of .cline/data/settings/providers.json
    return Start(
        ("--config", str(folder), "--data-dir", str(folder / "data"), "--provider", OPENAI_COMPATIBLE),
        {"OPENAI_API_KEY": key},
    )


def _open_webui(facts: ServerFacts, key: str, file: Path) -> Start:
    return Start(
        ("serve",),
        {"OPENAI_API_BASE_URL": facts.base_url, "OPENAI_API_KEY": key, "ENABLE_OLLAMA_API": "False"},
    )


def _pi(facts: ServerFacts, key: str, file: Path) -> Start:
    # Sessions stay with the user's own.
    sessions = str(Path.home() / ".pi" / "agent" / "sessions")
    return Start(
        ("--provider", PROVIDER, "--model", facts.model.name),
        {"PI_CODING_AGENT_DIR": str(file.parent), "PI_CODING_AGENT_SESSION_DIR": sessions, KEY_VARIABLE: key},
    )


def _qwen(facts: ServerFacts, key: str, file: Path) -> Start:
    return Start(
        ("--auth-type", "openai"),
        {"OPENAI_BASE_URL": facts.base_url, "OPENAI_API_KEY": key, "OPENAI_MODEL": facts.model.name},
    )


def _kimi(facts: ServerFacts, key: str, file: Path) -> Start:
    return Start((), {"KIMI_CODE_HOME": str(file.parent), KEY_VARIABLE: key})


def _poolside(facts: ServerFacts, key: str, file: Path) -> Start:
    return Start(
        ("-m", facts.model.name), {"POOLSIDE_STANDALONE_BASE_URL": facts.base_url, "POOLSIDE_API_KEY": key}
    )


def _copilot_cli(facts: ServerFacts, key: str, file: Path) -> Start:
    provider = {
        "COPILOT_PROVIDER_BASE_URL": facts.base_url,
        "COPILOT_PROVIDER_API_KEY": key,
        "COPILOT_PROVIDER_WIRE_API": "responses",
        "COPILOT_MODEL": facts.model.name,
    }
    return Start(("--model", facts.model.name), provider)


def _dsh(facts: ServerFacts, key: str, file: Path) -> Start:
    return Start(("web",), {"DSH_HOME": str(file.parent), KEY_VARIABLE: key})


LAUNCHES: Final[dict[str, Launch]] = {
    "claude": Launch("claude", 32_768, _claude),
    "codex": Launch("codex", 32_768, _codex),
    "opencode": Launch("opencode", 32_768, _opencode),
    "cline": Launch("cline", 32_768, _cline),
    "continue": Launch("cn", 16_384, _continue),
    "pi": Launch("pi", 16_384, _pi),
    "qwen": Launch("qwen", 32_768, _qwen),
    "kimi": Launch("kimi", 32_768, _kimi),
    "poolside": Launch("pool", 32_768, _poolside),
    "copilot-cli": Launch("copilot", 32_768, _copilot_cli),
    "dsh": Launch("dsh", 32_768, _dsh),
    "aider": Launch("aider", 8_192, _aider),
    "open-webui": Launch("open-webui", 4_096, _open_webui),
}
"""Launches by the program's name in RECIPES."""
