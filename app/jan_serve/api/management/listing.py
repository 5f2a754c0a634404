"""The list of models on disk with their state in memory (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jan_serve.api.management import wire
from jan_serve.api.management.pulls import PullProgress, progress_of
from jan_serve.core.models.listed_model import ListedModel
from jan_serve.core.models.model_facts import ModelFacts
from jan_serve.core.models.model_status import ModelStatus
from jan_serve.dialects.shared.model_cards import OWNER, context_length, input_modalities, meta
from jan_serve.placement.report import advice, lines

_VALUES: Final[dict[str, wire.StatusValue]] = {
    "loading": "loading",
    "ready": "loaded",
    "stopping": "unloading",
    "failed": "failed",
}


def model_list(
    models: Sequence[ListedModel],
    states: Sequence[ModelStatus],
    downloads: Sequence[PullProgress] = (),
    default: str | None = None,
) -> wire.ManagedModels:
    """All models on disk, in the library's order, then the running downloads. default: the model's name, if any."""
    by_name = {state.name: state for state in states}
    on_disk = {model.name for model in models}
    running = [_downloading(download) for download in downloads if download.name not in on_disk]
    return {
        "object": "list",
        "default": default,
        "data": [*(_model(model, by_name.get(model.name)) for model in models), *running],
    }


def _downloading(download: PullProgress) -> wire.ManagedModel:
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


def status(state: ModelStatus | None, problem: str | None = None) -> wire.Status:
    """problem: why its file cannot be served."""
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
    failed: wire.Status = {"value": "failed", "failed": True, "reason": reason}
    if state is not None and state.retry_after_s is not None:
        failed["retry_after_s"] = round(state.retry_after_s, 1)
    return failed


def _model(model: ListedModel, state: ModelStatus | None) -> wire.ManagedModel:
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
        "architecture": {"input_modalities": input_modalities(model), "output_modalities": ["text"]},
        "status": status(state, model.problem),
        "context_length": context,
        "max_model_len": context,
        "meta": meta(model, state),
        "running": state.leases if state is not None else 0,
        "queued": state.waiting if state is not None else 0,
        "ttl_s": _rounded(state.keep_alive_left_s) if state is not None else None,
        "pinned": state is not None and state.pinned,
        "group": state.group if state is not None else None,
        "lora": list(model.adapters),
        "memory": _memory(state),
        "parallel": facts.parallel if facts is not None else None,
        "device": facts.device if facts is not None else None,
        "placement": placement(facts) if facts is not None and facts.placement else None,
    }


def placement(facts: ModelFacts) -> wire.Placement:
    """Main memory first."""
    parts = facts.placement
    return {
        "parts": [
            {
                "device": part.device,
                "kind": part.kind,
                "blocks": _range(part.first, part.last),
                "experts": _range(part.experts_first, part.experts_last),
                "output": part.output,
                "weights": part.weights,
                "cache": part.cache,
                "compute": part.compute,
                "allocated": part.allocated,
                "text": text,
            }
            for part, text in zip(parts, lines(parts), strict=True)
        ],
        "advice": advice(parts, facts.placement_warning),
    }


def _range(first: int | None, last: int | None) -> list[int] | None:
    return [first, last] if first is not None and last is not None else None


def _memory(state: ModelStatus | None) -> wire.Memory | None:
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
