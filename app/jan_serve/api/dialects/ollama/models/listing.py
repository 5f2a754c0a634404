"""Rows of /api/tags and /api/ps. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Final

from jan_serve.api.dialects.ollama.models.wire import ListedRow, LoadedRow, OllamaDetails
from jan_serve.api.dialects.ollama.names import shown_names
from jan_serve.api.dialects.ollama.render_common import time_text
from jan_serve.core.models.listed_model import HeaderFacts, ListedModel
from jan_serve.core.models.model_facts import ModelFacts
from jan_serve.core.models.model_status import ModelStatus

FOR_EVER: Final = timedelta(days=106_751)
"""Ollama's longest duration, 2^63 nanoseconds."""

_KEPT_MODELS: Final = 2048
"""Whose rows are kept: clients ask for the list again and again, on the event loop."""


def listed_rows(models: Iterable[ListedModel]) -> list[ListedRow]:
    """A row for each name of each usable model, the newest first."""
    usable = (model for model in models if model.problem is None)
    newest_first = sorted(usable, key=lambda model: -model.modified_at)
    return [row for model in newest_first for row in _rows_of(model)]


@lru_cache(_KEPT_MODELS)
def _rows_of(model: ListedModel) -> list[ListedRow]:
    return [
        {
            "name": name,
            "model": name,
            "modified_at": modified_at(model),
            "size": model.size_bytes,
            "digest": digest(model),
            "details": details(model.facts),
        }
        for name in shown_names(model)
    ]


def loaded_rows(
    models: Iterable[ListedModel], states: Sequence[ModelStatus], now: datetime
) -> list[LoadedRow]:
    """The models in memory, those that stay longest first."""
    by_name = {model.name: model for model in models}
    found: list[tuple[datetime, LoadedRow]] = []
    for state in states:
        model = by_name.get(state.name)
        if model is None or state.facts is None or state.state != "ready":
            continue
        expires = now + _left(state)
        name = shown_names(model)[0]
        row: LoadedRow = {
            "name": name,
            "model": name,
            "size": state.taken_bytes,
            "digest": digest(model),
            "details": details(model.facts),
            "expires_at": expires.isoformat(timespec="microseconds"),
            "size_vram": _on_device(state.taken_bytes, state.facts),
            "context_length": state.facts.n_ctx,
        }
        found.append((expires, row))
    return [row for _, row in sorted(found, key=lambda item: item[0], reverse=True)]


def modified_at(model: ListedModel) -> str:
    return time_text(datetime.fromtimestamp(model.modified_at, UTC))


def digest(model: ListedModel) -> str:
    """The SHA-256 of the first file if it is known, else one of what changes with the file."""
    if model.sha256 is not None:
        return model.sha256
    return sha256(f"{model.name}\0{model.size_bytes}\0{model.modified_at}".encode()).hexdigest()


def details(facts: HeaderFacts | None) -> OllamaDetails:
    """facts: None if the header was not read yet."""
    family = facts.architecture if facts is not None else ""
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": parameter_size(facts.n_parameters) if facts is not None else "",
        "quantization_level": (facts.quantisation if facts is not None else None) or "unknown",
    }


def parameter_size(count: int) -> str:
    """As Ollama writes it: `8.2B`, `8B`, `494.03M`, `12.34K`."""
    if count >= 1_000_000_000:
        return f"{count / 1_000_000_000:.1f}".removesuffix(".0") + "B"
    if count >= 1_000_000:
        return f"{count / 1_000_000:.2f}M"
    return f"{count / 1_000:.2f}K" if count >= 1_000 else str(count)


def _left(state: ModelStatus) -> timedelta:
    if state.keep_alive_left_s is None:
        return FOR_EVER
    return min(timedelta(seconds=state.keep_alive_left_s), FOR_EVER)


def _on_device(taken: int, facts: ModelFacts) -> int:
    if facts.placement:
        return min(taken, sum(part.total for part in facts.placement if part.kind != "cpu"))
    return taken * min(facts.n_gpu_layers, facts.n_layer) // facts.n_layer if facts.n_layer else 0
