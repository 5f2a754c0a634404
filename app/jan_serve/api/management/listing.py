"""What is here and what is loaded, as the list of models shows it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from jan_serve.api.management import wire
from jan_serve.api.management.ports import ManagedState
from jan_serve.store.library import ListedModel

OWNER: Final = "jan-serve"

_VALUES: Final[dict[str, wire.StatusValue]] = {
    "loading": "loading",
    "ready": "loaded",
    "stopping": "unloading",
    "failed": "failed",
}


def model_list(models: Sequence[ListedModel], states: Sequence[ManagedState]) -> wire.ManagedModels:
    """All models that are here, in the order of the folder's own list."""
    by_name = {state.name: state for state in states}
    return {"object": "list", "data": [_model(model, by_name.get(model.name)) for model in models]}


def status(state: ManagedState | None, problem: str | None = None) -> wire.Status:
    """The state of one model. problem: why its file cannot be served."""
    value = _VALUES.get(state.state, "unloaded") if state is not None else "unloaded"
    reason = (state.reason if state is not None else None) or problem
    if state is not None and value == "loading":
        stage: wire.LoadStage = {
            "stages": ["text_model"],
            "current": "text_model",
            "value": round(state.load_fraction, 4),
        }
        return {"value": value, "progress": stage}
    if reason is None or value in ("loaded", "unloading"):
        return {"value": value}
    told: wire.Status = {"value": "failed", "failed": True, "reason": reason}
    if state is not None and state.retry_after_s is not None:
        told["retry_after_s"] = round(state.retry_after_s, 1)
    return told


def _model(model: ListedModel, state: ManagedState | None) -> wire.ManagedModel:
    facts = state.facts if state is not None else None
    n_ctx_train = model.facts.n_ctx_train if model.facts is not None else None
    context = facts.n_ctx if facts is not None else n_ctx_train
    return {
        "id": model.name,
        "object": "model",
        "created": model.modified_at,
        "owned_by": OWNER,
        "aliases": list(model.aliases),
        "source": model.source,
        "can_remove": model.can_remove,
        "size_bytes": model.size_bytes,
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "status": status(state, model.problem),
        "context_length": context,
        "max_model_len": context,
        "meta": _meta(model),
        "running": state.leases if state is not None else 0,
        "queued": state.waiting if state is not None else 0,
        "memory": _memory(state),
        "parallel": facts.parallel if facts is not None else None,
        "device": facts.device if facts is not None else None,
    }


def _meta(model: ListedModel) -> dict[str, Any]:
    """llama-server's names where it has them."""
    if model.facts is None:
        return {"size": model.size_bytes}
    return {
        "architecture": model.facts.architecture,
        "title": model.facts.title,
        "n_ctx_train": model.facts.n_ctx_train,
        "n_params": model.facts.n_parameters,
        "size": model.size_bytes,
        "quantization": model.facts.quantisation,
        "has_chat_template": model.facts.has_chat_template,
        "pooling": model.facts.pooling,
    }


def _memory(state: ManagedState | None) -> wire.Memory | None:
    if state is None or state.facts is None:
        return None
    return {
        "weights": state.facts.size_bytes,
        "kv_cache": state.facts.kv_bytes,
        "resident": state.stats.rss_bytes,
    }
