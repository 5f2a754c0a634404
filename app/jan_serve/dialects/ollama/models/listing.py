"""Rows of /api/tags and /api/ps. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import Final

from jan_serve.core.models.listed_model import HeaderFacts, ListedModel
from jan_serve.core.models.model_facts import ModelFacts
from jan_serve.core.models.model_status import ModelStatus
from jan_serve.dialects.ollama.models.capabilities import listed_capabilities
from jan_serve.dialects.ollama.models.wire import ListedRow, LoadedRow, OllamaDetails
from jan_serve.dialects.ollama.names import shown_names, tagged
from jan_serve.dialects.ollama.render_common import time_text
from jan_serve.generation.template_choice import TemplateOverride

FOR_EVER: Final = timedelta(days=106_751)
"""Ollama's longest duration, 2^63 nanoseconds."""

_KEPT_ROWS: Final = 4096
"""Clients ask for the list again and again."""


def listed_rows(
    models: Iterable[ListedModel], override_of: Callable[[str, str | None], TemplateOverride | None]
) -> list[ListedRow]:
    """A row for each name of each usable model, the newest first.

    override_of: the configured chat template of a model, by itself (None) or by another of its names.
    """
    usable = (model for model in models if model.problem is None)
    newest_first = sorted(usable, key=lambda model: -model.modified_at)
    return [
        _row(model, name, override_of(model.name, None if name == tagged(model.name) else name))
        for model in newest_first
        for name in shown_names(model)
    ]


@lru_cache(_KEPT_ROWS)
def _row(model: ListedModel, name: str, override: TemplateOverride | None) -> ListedRow:
    row: ListedRow = {
        "name": name,
        "model": name,
        "modified_at": modified_at(model),
        "size": model.size_bytes,
        "digest": digest(model),
        "details": details(model.facts),
    }
    found = listed_capabilities(model.facts, model.modalities, override)
    if found is not None:
        row["capabilities"] = found
    return row


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
    return timedelta(seconds=min(state.keep_alive_left_s, FOR_EVER.total_seconds()))


def _on_device(taken: int, facts: ModelFacts) -> int:
    if facts.placement:
        return min(taken, sum(part.total for part in facts.placement if part.kind != "cpu"))
    return taken * min(facts.n_gpu_layers, facts.n_layer) // facts.n_layer if facts.n_layer else 0
