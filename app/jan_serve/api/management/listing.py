"""What is here and what is loaded, as the list of models shows it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jan_serve.api.management import wire
from jan_serve.api.management.management_port import ManagedState
from jan_serve.api.management.pulls import Download, progress_of
from jan_serve.api.shared.model_cards import OWNER, context_length, meta
from jan_serve.core.listed_model import ListedModel

_VALUES: Final[dict[str, wire.StatusValue]] = {
    "loading": "loading",
    "ready": "loaded",
    "stopping": "unloading",
    "failed": "failed",
}


def model_list(
    models: Sequence[ListedModel], states: Sequence[ManagedState], downloads: Sequence[Download] = ()
) -> wire.ManagedModels:
    """All models that are here, in the order of the folder's own list, then those that are on their way."""
    by_name = {state.name: state for state in states}
    here = {model.name for model in models}
    coming = [_coming(download) for download in downloads if download.name not in here]
    return {
        "object": "list",
        "data": [*(_model(model, by_name.get(model.name)) for model in models), *coming],
    }


def _coming(download: Download) -> wire.ManagedModel:
    """A model that is being downloaded."""
    model = ListedModel(
        name=download.name,
        aliases=(),
        adapters=(),
        source="hub",
        source_name="",
        size_bytes=download.total,
        modified_at=0,
        can_remove=False,
        facts=None,
        problem=None,
    )
    return {**_model(model, None), "status": {"value": "downloading", "progress": progress_of(download)}}


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
    context = context_length(model, state)
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
        "meta": meta(model, state),
        "running": state.leases if state is not None else 0,
        "queued": state.waiting if state is not None else 0,
        "ttl_s": _rounded(state.idle_left_s) if state is not None else None,
        "pinned": state is not None and state.pinned,
        "group": state.group if state is not None else None,
        "lora": list(model.adapters),
        "memory": _memory(state),
        "parallel": facts.parallel if facts is not None else None,
        "device": facts.device if facts is not None else None,
    }


def _memory(state: ManagedState | None) -> wire.Memory | None:
    if state is None or not state.taken_bytes:
        return None
    facts = state.facts
    return {
        "total": state.taken_bytes,
        "weights": facts.size_bytes if facts is not None else None,
        "kv_cache": facts.kv_bytes if facts is not None else None,
        "resident": (state.stats.rss_bytes or None) if facts is not None else None,
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
