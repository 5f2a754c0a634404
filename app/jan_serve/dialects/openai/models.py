"""GET /v1/models and /v1/models/NAME: list models without loading any."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NotRequired

from fastapi import APIRouter
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.models import ListedModel, ModelStatus
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.shared.model_cards import OWNER, context_length, input_modalities, meta, unknown_model
from jan_serve.http.replies import json_reply


class ModelInputs(TypedDict):
    """What a model reads and writes, in OpenRouter's words: text, image, audio."""

    input_modalities: list[str]
    output_modalities: list[str]


class ModelData(TypedDict):
    """An available model. Lengths in tokens; null if the header was not read yet.

    root, parent: for a LoRA adapter, the model that it belongs to.
    """

    id: str
    object: Literal["model"]
    created: NotRequired[int]
    owned_by: str
    permissions: list[str]
    context_length: NotRequired[int | None]
    max_model_len: NotRequired[int | None]
    aliases: NotRequired[list[str]]
    architecture: NotRequired[ModelInputs]
    meta: NotRequired[dict[str, Any]]
    root: NotRequired[str]
    parent: NotRequired[str]


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelData]


def add_model_routes(router: APIRouter, services: Services) -> None:
    async def cards() -> list[ModelData]:
        if services.store is None:
            return [_bare(model.name) for model in await services.models.models()]
        states = {state.name: state for state in services.models.snapshot().models}
        return list(_cards(await services.store.models(), states.values()))

    @router.get("/v1/models", summary="Models", response_model=ModelList)
    async def get_models() -> Response:
        """List the available models, and their LoRA adapters as `model:adapter`."""
        return json_reply({"object": "list", "data": await cards()})

    @router.get("/v1/models/{name:path}", summary="Model", response_model=ModelData)
    async def get_model(name: str) -> Response:
        """Get a model by name or alias."""
        for card in await cards():
            if name == card["id"] or name in card.get("aliases", ()):
                return json_reply(await asyncio.to_thread(with_template, card, name))
        raise await unknown_model(name, services.store)

    def with_template(card: ModelData, name: str) -> ModelData:
        """The name may be that of a variant, which has a chat template of its own."""
        if "meta" not in card or services.preparer.template_overrides()(card["id"], name) is None:
            return card
        return {**card, "meta": {**card["meta"], "has_chat_template": True}}


def _bare(name: str) -> ModelData:
    return {"id": name, "object": "model", "created": 0, "owned_by": OWNER, "permissions": []}


def _cards(models: Sequence[ListedModel], states: Iterable[ModelStatus]) -> Iterable[ModelData]:
    by_name = {state.name: state for state in states}
    for model in models:
        state = by_name.get(model.name)
        length = context_length(model, state)
        card: ModelData = {
            **_bare(model.name),
            "created": model.modified_at,
            "context_length": length,
            "max_model_len": length,
            "aliases": list(model.aliases),
            "architecture": {"input_modalities": input_modalities(model), "output_modalities": ["text"]},
            "meta": meta(model, state),
        }
        yield card
        for adapter in model.adapters:
            name, *aliases = (f"{each}:{adapter}" for each in (model.name, *model.aliases))
            yield {**card, "id": name, "aliases": aliases, "root": model.name, "parent": model.name}
