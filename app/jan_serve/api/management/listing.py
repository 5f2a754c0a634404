"""The list of models on disk with their state in memory (pure), and events of one load or of all models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, Final

from jan_serve.api.management import wire
from jan_serve.api.management.pulls import Management, PullProgress, Pulls, progress_of, running
from jan_serve.core.models import ListedModel, ModelFacts, ModelStatus
from jan_serve.dialects.shared.model_cards import OWNER, context_length, input_modalities, meta
from jan_serve.placement.report import advice, lines
from jan_serve.store.library import ModelLibrary

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
    enough_for: Mapping[str, list[str]] | None = None,
) -> wire.ManagedModels:
    """All models on disk, in the library's order, then the running downloads. default: the model's name, if any.

    enough_for: by names; see wire.ManagedModel.
    """
    by_name = {state.name: state for state in states}
    rows = [_model(model, by_name.get(model.name), (enough_for or {}).get(model.name)) for model in models]
    on_disk = {model.name for model in models}
    rows += [_downloading(download) for download in downloads if download.name not in on_disk]
    return {"object": "list", "default": default, "data": rows}


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


def found(library: ModelLibrary) -> list[wire.FoundModel]:
    """The models of other programs. Blocks on the disk."""
    from jan_serve.store.imports.finders import TITLES

    return [
        {
            "id": item.name,
            "program": TITLES["hf" if item.found.kind == "hf-cache" else item.found.kind],
            "size_bytes": item.found.n_bytes,
            "state": item.state.value,
            "reason": item.reason or None,
        }
        for item in library.elsewhere()
    ]


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


def _model(
    model: ListedModel, state: ModelStatus | None, enough_for: list[str] | None = None
) -> wire.ManagedModel:
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
        "ttl_s": round(state.ttl_left_s, 1) if state is not None and state.ttl_left_s is not None else None,
        "pinned": state is not None and state.pinned,
        "group": state.group if state is not None else None,
        "lora": list(model.adapters),
        "memory": _memory(state),
        "parallel": facts.parallel if facts is not None else None,
        "device": facts.device if facts is not None else None,
        "placement": placement(facts) if facts is not None and facts.placement else None,
        "enough_for": enough_for or [],
    }


def placement(facts: ModelFacts) -> wire.Placement:
    """The memory of each device, main memory first."""
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
        "read_per_token": (facts.bytes_per_token or None) if facts is not None else None,
        "kv_cache": facts.kv_bytes if facts is not None else None,
        "resident": (state.stats.rss_bytes or None) if facts is not None else None,
    }


Event = dict[str, Any]

_RELOAD: Final[Event] = {"model": "*", "event": "models_reload", "data": {}}
_LOAD_POLL_S: Final = 0.1
_POLL_S: Final = 0.25
_FOLDER_POLL_S: Final = 2.0


async def load_events(management: Management, name: str, ttl_s: float | None) -> AsyncGenerator[Event]:
    """`model_status` events of a load. Closing the stream stops the load. Raises as ModelManager.load."""
    manager = management.manager
    sent: object = None
    async with running(manager.load(name, ttl_s)) as work:
        while not work.done():
            await asyncio.wait([work], timeout=_LOAD_POLL_S)
            now = next((state for state in manager.snapshot().models if state.name == name), None)
            seen = status(now)
            if not work.done() and seen["value"] == "loading" and seen != sent:
                sent = seen
                yield _status_event(name, seen)
        yield _status_event(work.result(), {"value": "loaded"})


async def all_events(management: Management, pulls: Pulls) -> AsyncGenerator[Event]:
    """Changes of every model, from now on: `model_status`, `download_progress`, `model_remove`, `models_reload`.

    Starts with `models_reload`: later events keep a `GET /models` up to date. Ends when it is closed, and when
    the server drains. A change that is undone between two polls is not reported.
    """
    names = await _names(management)
    known = _states(management)
    yield _RELOAD
    downloads: dict[str, Any] = {}
    polls = 0
    while True:
        await asyncio.sleep(_POLL_S)
        if management.manager.snapshot().draining:
            return
        now = _states(management)
        for name, seen in now.items():
            if known.get(name, {"value": "unloaded"}) != seen:
                yield _status_event(name, seen)
        known = now
        under_way = {download.name: progress_of(download) for download in pulls.downloads()}
        for name, progress in under_way.items():
            if downloads.get(name) != progress:
                yield {"model": name, "event": "download_progress", "data": progress}
        ended = downloads.keys() - under_way.keys()
        downloads = under_way
        polls += 1
        if ended or polls * _POLL_S >= _FOLDER_POLL_S:
            polls = 0
            present = await _names(management)
            for event in _changes(names, present, ended):
                yield event
            names = present


def _changes(before: set[str], present: set[str], ended: Iterable[str]) -> Iterable[Event]:
    for name in sorted(ended):
        kind = "download_finished" if name in present else "download_failed"
        yield {"model": name, "event": kind, "data": {}}
    for name in sorted(before - present):
        yield {"model": name, "event": "model_remove", "data": {}}
    if present - before:
        yield _RELOAD


async def _names(management: Management) -> set[str]:
    return {model.name for model in await management.library.models()}


def _states(management: Management) -> dict[str, wire.Status]:
    return {state.name: status(state) for state in management.manager.snapshot().models}


def _status_event(name: str, seen: wire.Status) -> Event:
    """llama-server's `status` is the value alone."""
    data = {key: value for key, value in seen.items() if key != "value"}
    return {"model": name, "event": "model_status", "data": {"status": seen["value"], **data}}
