"""LMDeploy's routes about the server itself: its models, whether it is alive, its metrics."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from enum import Enum
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from jan_serve.api.dialect import Services
from jan_serve.api.dialects.lmdeploy.wire_extras import ModelCard, ModelList
from jan_serve.api.metrics import CONTENT_TYPE
from jan_serve.api.replies import json_reply

_TAGS: Final[list[str | Enum]] = ["LMDeploy"]
_ID_DIGITS: Final = 22


def add_model_route(router: APIRouter, services: Services, prefix: str) -> None:
    """GET /v1/models."""

    @router.get(f"{prefix}/v1/models", tags=_TAGS, response_model=ModelList)
    async def available_models() -> Response:
        """The models that can be asked for, each followed by its LoRA adapters, as `model:adapter`."""
        created = int(time.time())
        cards = [_card(name, created) for name in await _names(services)]
        return json_reply({"object": "list", "data": cards})


async def _names(services: Services) -> list[str]:
    if services.library is None:
        return [model.name for model in await services.models.models()]
    names: list[str] = []
    for model in await services.library.models():
        names += [model.name, *(f"{model.name}:{adapter}" for adapter in model.adapters)]
    return names


def add_state_routes(router: APIRouter, metrics_page: Callable[[], bytes], prefix: str) -> None:
    """GET /health and /metrics."""

    @router.get(f"{prefix}/health", tags=_TAGS, response_class=Response)
    async def health() -> Response:
        """Alive: an empty 200."""
        return Response()

    @router.get(
        f"{prefix}/metrics",
        tags=_TAGS,
        responses={200: {"content": {"text/plain": {}}}},
        response_class=Response,
    )
    async def metrics() -> Response:
        """Prometheus text exposition; the same page as at the root."""
        return Response(metrics_page(), headers={"content-type": CONTENT_TYPE})


def _card(name: str, created: int) -> ModelCard:
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "lmdeploy",
        "root": name,
        "parent": None,
        "permission": [
            {
                "id": f"modelperm-{uuid.uuid4().hex[:_ID_DIGITS]}",
                "object": "model_permission",
                "created": created,
                "allow_create_engine": False,
                "allow_sampling": True,
                "allow_logprobs": True,
                "allow_search_indices": True,
                "allow_view": True,
                "allow_fine_tuning": False,
                "organization": "*",
                "group": None,
                "is_blocking": False,
            }
        ],
    }
