"""GET /api/v0/models: the models with their state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NotRequired

from fastapi import APIRouter
from starlette.responses import Response
from typing_extensions import TypedDict

from jan_serve.core.models import HeaderFacts, ListedModel, ModelStatus
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.lmstudio.outline import PREFIX
from jan_serve.dialects.shared.documented_errors import DEFAULT_ERRORS
from jan_serve.http.json_body import JsonRoute
from jan_serve.http.replies import json_reply


class LmStudioModel(TypedDict):
    """Lengths in tokens: of the training, and of the loaded model."""

    id: str
    object: Literal["model"]
    type: Literal["llm", "vlm", "embeddings"]
    publisher: str
    arch: str
    compatibility_type: Literal["gguf"]
    quantization: str
    state: Literal["loaded", "not-loaded"]
    max_context_length: int
    loaded_context_length: NotRequired[int]


class LmStudioModels(TypedDict):
    object: Literal["list"]
    data: list[LmStudioModel]


def lmstudio_router(services: Services) -> APIRouter:
    router = APIRouter(route_class=JsonRoute, tags=["LM Studio"], responses=DEFAULT_ERRORS)
    store = services.store
    if store is None:
        return router

    async def rows() -> list[LmStudioModel]:
        return list(_rows(await store.models(), services.models.snapshot().models))

    @router.get(f"{PREFIX}/models", summary="Models", response_model=LmStudioModels)
    async def models() -> Response:
        """All usable models. None is loaded for that."""
        return json_reply({"object": "list", "data": await rows()})

    @router.get(PREFIX + "/models/{name:path}", summary="Model", response_model=LmStudioModel)
    async def model(name: str) -> Response:
        """A model by its name."""
        for row in await rows():
            if row["id"] == name:
                return json_reply(row)
        raise await store.unknown(name)

    return router


def _type(model: ListedModel, facts: HeaderFacts) -> Literal["llm", "vlm", "embeddings"]:
    if facts.pooling not in (None, "none"):
        return "embeddings"
    return "vlm" if "vision" in model.modalities else "llm"


def _rows(models: Iterable[ListedModel], states: Iterable[ModelStatus]) -> Iterator[LmStudioModel]:
    by_name = {state.name: state for state in states}
    for model in models:
        if model.problem is not None or model.facts is None:
            continue
        facts = model.facts
        state = by_name.get(model.name)
        row: LmStudioModel = {
            "id": model.name,
            "object": "model",
            "type": _type(model, facts),
            "publisher": model.name.partition("/")[0] if "/" in model.name else "",
            "arch": facts.architecture,
            "compatibility_type": "gguf",
            "quantization": facts.quantisation or "unknown",
            "state": "not-loaded",
            "max_context_length": facts.n_ctx_train or 0,
        }
        if state is not None and state.state == "ready" and state.facts is not None:
            row["state"] = "loaded"
            row["loaded_context_length"] = state.facts.n_ctx
        yield row
