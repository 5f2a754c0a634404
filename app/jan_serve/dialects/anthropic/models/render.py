"""Renders models in Anthropic's form. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from jan_serve.core.models.listed_model import ListedModel
from jan_serve.core.models.model_status import ModelStatus
from jan_serve.dialects.anthropic.claude_names import names_for
from jan_serve.dialects.anthropic.models.wire import ModelInfo
from jan_serve.dialects.shared.model_cards import context_length

_ACCEPTED: Final = ("claude", "anthropic")
"""Claude Code's picker takes ids that begin so (CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY=1)."""


def bare_info(name: str) -> ModelInfo:
    """A model of which only the name is known."""
    return _info(name, 0, None)


def model_infos(models: Sequence[ListedModel], states: Iterable[ModelStatus]) -> list[ModelInfo]:
    """The models, their aliases that Claude Code's picker accepts, and their LoRA adapters as `model:adapter`."""
    by_name = {state.name: state for state in states}
    infos: list[ModelInfo] = []
    for model in models:
        length = context_length(model, by_name.get(model.name))
        names = [model.name, *(f"{model.name}:{adapter}" for adapter in model.adapters)]
        own, *adapters = (_info(name, model.modified_at, length) for name in names)
        infos.append(own)
        for alias in model.aliases:
            if alias.lower().startswith(_ACCEPTED):
                infos.append({**own, "id": alias})
        infos += adapters
    return infos


def aliases_of(models: Iterable[ListedModel]) -> dict[str, str]:
    """To the names of models, and of their adapters."""
    return {
        alias + suffix: model.name + suffix
        for model in models
        for alias in model.aliases
        for suffix in ("", *(f":{adapter}" for adapter in model.adapters))
    }


def find_info(name: str, infos: Sequence[ModelInfo], aliases: dict[str, str]) -> ModelInfo | None:
    """By name or alias, or by the family of a Claude's name. aliases: to the names of models."""
    by_id = {info["id"]: info for info in infos}
    for candidate in names_for(name):
        found = by_id.get(aliases.get(candidate, candidate))
        if found is not None:
            return found
    return None


def _info(name: str, modified_at: int, length: int | None) -> ModelInfo:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": datetime.fromtimestamp(modified_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": length,
        "max_tokens": length,
    }
