"""/extras/catalogue: the suggested models that `POST /models/pull` knows by a short name."""

from __future__ import annotations

import asyncio
from functools import cache
from pathlib import Path

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.responses import Response

from jan_serve.http.replies import json_reply
from jan_serve.store.hub.catalogue import Catalogue, CatalogueEntry

_GB = 10**9


class SuggestedModel(BaseModel):
    """A model that can be pulled by `id`. Sizes in bytes and n_params are approximate.

    kinds: its uses (chat, tools, vision, embedding …). memory_bytes: required to run it with 8,192 tokens of context.
    licence: an SPDX id, or the hub's name for it.
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


class SuggestedModels(BaseModel):
    """The catalogue, in the order of its file."""

    data: list[SuggestedModel]


def catalogue_router(path: Path | None) -> APIRouter:
    """path: the catalogue's file; None lists nothing."""
    router = APIRouter(tags=["Models"])

    @cache
    def answer() -> dict[str, object]:
        entries = Catalogue.read(path).entries()
        return SuggestedModels(data=[_suggested(entry) for entry in entries]).model_dump()

    @router.get("/extras/catalogue", summary="Suggested models", response_model=SuggestedModels)
    async def catalogue() -> Response:
        """Models that are known to work, with the short names to pull them by. Does not contact the hub."""
        return json_reply(await asyncio.to_thread(answer))

    return router


def _suggested(entry: CatalogueEntry) -> SuggestedModel:
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
    )
