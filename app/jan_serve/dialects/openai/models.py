"""GET /v1/models and /v1/models/NAME, which load no model, and what llama-server tells of one: /props and others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NotRequired

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve import __version__
from jan_serve.core.models import ListedModel, ModelFacts, ModelStatus
from jan_serve.dialects.openai.dialect import OpenAIParts
from jan_serve.dialects.shared.model_cards import OWNER, context_length, input_modalities, meta, unknown_model
from jan_serve.http.disconnect import while_connected
from jan_serve.http.replies import json_reply
from jan_serve.placement.report import advice, lines


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


class Props(TypedDict):
    """Properties of a model and the server: the part of llama-server's /props that clients read.

    placement: ours: a line for each device that holds a part, and what would make the model faster.
    """

    default_generation_settings: dict[str, Any]
    total_slots: int
    model_alias: str
    model_path: str
    chat_template: str
    chat_template_tool_use: NotRequired[str]
    bos_token: str
    eos_token: str
    modalities: dict[str, bool]
    build_info: str
    placement: list[str]


class SlotState(TypedDict):
    """n_ctx: of the model, which its slots share."""

    id: int
    n_ctx: int
    is_processing: bool


class LoraAdapter(TypedDict):
    """path: the name again, so that no local path is shown. scale: for requests that choose it without a scale."""

    id: int
    name: str
    path: str
    scale: float


def add_routes(router: APIRouter, parts: OpenAIParts) -> None:
    services = parts.services

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


def add_fact_routes(router: APIRouter, parts: OpenAIParts) -> None:
    """llama-server's."""
    facts_of = parts.service.facts

    @router.get("/props", summary="Props", response_model=Props)
    async def props(request: Request, model: str | None = None) -> Response:
        """Properties of a model; without a name, of the default model. Loads the model."""
        name, facts = await while_connected(request, facts_of(model or None))
        return json_reply(_props(name, facts))

    @router.get("/lora-adapters", summary="LoRA adapters", response_model=list[LoraAdapter])
    async def lora_adapters(request: Request, model: str | None = None) -> Response:
        """List the adapters of a model by the ids that `lora` takes. They apply only to requests that choose them."""
        _, facts = await while_connected(request, facts_of(model or None))
        return json_reply(
            [
                {"id": index, "name": adapter.name, "path": adapter.name, "scale": adapter.scale}
                for index, adapter in enumerate(facts.adapters)
            ]
        )

    @router.get("/slots", summary="Slots", response_model=list[SlotState])
    async def slots(request: Request, model: str | None = None) -> Response:
        """List the slots of a model; without a name, of the default model. Loads the model."""
        name, facts = await while_connected(request, facts_of(model or None))
        states = parts.services.models.snapshot().models
        running = next((state.stats.running for state in states if state.name == name), 0)
        return json_reply(
            [
                {"id": index, "n_ctx": facts.n_ctx, "is_processing": index < running}
                for index in range(facts.parallel)
            ]
        )


def _props(name: str, facts: ModelFacts) -> Props:
    answer: Props = {
        "default_generation_settings": {"n_ctx": facts.n_ctx, "params": {"n_predict": -1}},
        "total_slots": facts.parallel,
        "model_alias": name,
        "model_path": name,
        "chat_template": facts.chat_templates.get("default", ""),
        "bos_token": facts.special_text("bos"),
        "eos_token": facts.special_text("eos"),
        "modalities": {sense: sense in facts.modalities for sense in ("vision", "audio")},
        "build_info": f"jan-serve {__version__}",
        "placement": [*lines(facts.placement), *advice(facts.placement, facts.placement_warning)],
    }
    if "tool_use" in facts.chat_templates:
        answer["chat_template_tool_use"] = facts.chat_templates["tool_use"]
    return answer
