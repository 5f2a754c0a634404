"""/extras/clients, /extras/catalogue, /extras/advice: settings of programs, models, and which suit this machine."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.core.placement import MAX_DEFAULT_N_CTX
from jan_serve.dialects.ports import ServedModels
from jan_serve.dialects.shared.model_cards import context_length, meta
from jan_serve.editors.recipe import EditorModel, Folders, ServerFacts, editor_model
from jan_serve.errors import ModelNotFound
from jan_serve.http.replies import json_reply
from jan_serve.store.hub.references import Catalogue, CatalogueEntry
from jan_serve.store.library import ModelLibrary
from jan_serve.store.model_advice import PURPOSES, advised, purpose_named, this_machine
from jan_serve.store.model_memory import FreeMemory

_GB = 10**9


class SuggestedModel(BaseModel):
    """A model that can be pulled by `id`. Sizes in bytes and n_params are approximate.

    kinds: its uses (chat, tools, vision, embedding …). memory_bytes: required to run it with 8,192 tokens of context.
    licence: an SPDX id, or the hub's name for it. fits: whether so much memory is free here; null if unknown.
    """

    id: str
    title: str
    repo: str
    quantization: str
    kinds: list[str]
    n_params: int
    size_bytes: int
    memory_bytes: int
    context_length: int
    licence: str
    note: str
    fits: bool | None


class SuggestedModels(BaseModel):
    """The catalogue, in the order of its file."""

    data: list[SuggestedModel]


class AdvisedModel(SuggestedModel):
    """A suggested model on this machine. Sizes in bytes.

    bytes_per_token: weights that each token reads. tokens_per_second: what one answer may get on the CPU; null where it
    is not known (on a graphics card), or where the model writes nothing. reason: why it is here.
    """

    bytes_per_token: int
    tokens_per_second: float | None
    reason: str


class Purpose(BaseModel):
    """A value of `for`, and its words for people."""

    id: str
    title: str


class MachineFacts(BaseModel):
    """What the advice is from. memory_bytes: free for models, accelerators included. bandwidth: bytes a second."""

    memory_bytes: int
    accelerator_bytes: list[int]
    cores: int
    bandwidth: float


class ModelAdvice(BaseModel):
    """At most three models for the purpose, the recommended one first."""

    purpose: str
    purposes: list[Purpose]
    machine: MachineFacts
    data: list[AdvisedModel]


def catalogue_router(path: Path | None, free_memory: Callable[[], FreeMemory] | None = None) -> APIRouter:
    """path: the catalogue's file; None lists nothing. free_memory: measures what models may take; blocks."""
    router = APIRouter(tags=["Models"])

    def answer() -> dict[str, object]:
        usable = free_memory().usable if free_memory is not None else None
        entries = Catalogue.read(path).entries()
        return SuggestedModels(data=[_suggested(entry, usable) for entry in entries]).model_dump()

    @router.get("/extras/catalogue", summary="Suggested models", response_model=SuggestedModels)
    async def catalogue() -> Response:
        """Models that are known to work, with the short names to pull them by. Does not contact the hub."""
        return json_reply(await asyncio.to_thread(answer))

    def advice(purpose: str) -> dict[str, object]:
        machine = this_machine(free_memory)
        found = advised(Catalogue.read(path).entries(), purpose_named(purpose), machine)
        return ModelAdvice(
            purpose=purpose,
            purposes=[Purpose(id=name, title=known.title) for name, known in PURPOSES.items()],
            machine=MachineFacts(
                memory_bytes=machine.free.usable,
                accelerator_bytes=list(machine.free.accelerators),
                cores=machine.cores,
                bandwidth=machine.bandwidth,
            ),
            data=[
                AdvisedModel(
                    **_suggested(one.entry, machine.free.usable).model_dump(),
                    bytes_per_token=one.bytes_per_token,
                    tokens_per_second=one.speed,
                    reason=one.reason,
                )
                for one in found
            ],
        ).model_dump()

    @router.get("/extras/advice", summary="Models for this machine", response_model=ModelAdvice)
    async def model_advice(
        for_: Annotated[str, Query(alias="for", description="What the model is for.")] = "chat",
    ) -> Response:
        """Models of the catalogue for a purpose and this machine, with the speed to expect.

        Measures the memory for a moment, the first time. Does not contact the hub.
        """
        return json_reply(await asyncio.to_thread(advice, for_))

    return router


def _suggested(entry: CatalogueEntry, usable: int | None) -> SuggestedModel:
    return SuggestedModel(
        id=entry.name,
        title=entry.title,
        repo=entry.repo,
        quantization=entry.quantization,
        kinds=list(entry.kinds),
        n_params=round(entry.parameters * _GB),
        size_bytes=round(entry.size_gb * _GB),
        memory_bytes=round(entry.memory_gb * _GB),
        context_length=entry.context,
        licence=entry.licence,
        note=entry.note,
        fits=entry.memory_gb * _GB <= usable if usable is not None else None,
    )


_CODE: Final = {"darwin": "Library/Application Support/Code/User", "win32": "AppData/Roaming/Code/User"}
_ZED: Final = {"win32": "AppData/Roaming/Zed"}


class Client(BaseModel):
    """A program. settings: the content for the file `path`; both are null if the program has no such file.

    steps: manual steps.
    """

    id: str
    title: str
    path: str | None
    settings: str | None
    steps: list[str]


class ClientList(BaseModel):
    data: list[Client]


def clients_router(models: ServedModels, library: ModelLibrary, *, needs_key: bool) -> APIRouter:
    router = APIRouter(tags=["Extras"])

    @router.get("/extras/clients", summary="Clients", response_model=ClientList)
    async def clients(request: Request, model: str | None = None) -> Response:
        """Settings for editors and other programs, with this model as their default."""
        states = {state.name: state for state in models.snapshot().models}
        known = tuple(
            editor_model(
                {
                    "id": listed.name,
                    "context_length": context_length(listed, states.get(listed.name)),
                    "meta": meta(listed, states.get(listed.name)),
                },
                MAX_DEFAULT_N_CTX,
            )
            for listed in await library.models()
        )
        facts = ServerFacts(
            url=str(request.base_url).rstrip("/"),
            needs_key=needs_key,
            models=known,
            model=_first(known, model, await asyncio.to_thread(library.default)),
        )
        return json_reply({"data": [client.model_dump() for client in _clients(facts)]})

    return router


def _first(models: tuple[EditorModel, ...], requested: str | None, default: str | None) -> EditorModel:
    found = [model for model in models if model.is_chat and requested in (None, model.name)]
    if not found:
        raise ModelNotFound(requested or "")
    return min(found, key=lambda model: model.name != default)


def _clients(facts: ServerFacts) -> list[Client]:
    # Imported on first use: most servers never need it.
    from jan_serve.editors.recipes import RECIPES

    found: list[Client] = []
    for name, make in RECIPES.items():
        recipe = make(facts, shown_folders(sys.platform))
        change = recipe.change
        path = change.path.as_posix() if change is not None else None
        settings = change.merge("").rstrip("\n") if change is not None else None
        found.append(
            Client(id=name, title=recipe.title, path=path, settings=settings, steps=list(recipe.steps))
        )
    return found


def shown_folders(platform: str) -> Folders:
    """The usual settings folders on a platform, relative to `~`. For display only."""
    home = PurePosixPath("~")
    config = home / ".config"
    code = home / _CODE[platform] if platform in _CODE else config / "Code/User"
    zed = home / _ZED[platform] if platform in _ZED else config / "zed"
    return Folders(home=Path(home), config=Path(config), code=Path(code), zed=Path(zed))
