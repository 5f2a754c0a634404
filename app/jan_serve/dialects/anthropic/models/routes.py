"""GET /v1/models of requests with `anthropic-version`: lists models without loading any."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from jan_serve.dialects.anthropic.models.paging import page
from jan_serve.dialects.anthropic.models.render import aliases_of, bare_info, find_info, model_infos
from jan_serve.dialects.anthropic.models.wire import ModelInfo, ModelPage
from jan_serve.dialects.dialect import Services
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.model_cards import unknown_model
from jan_serve.http.replies import json_reply


def add_model_routes(router: APIRouter, services: Services, prefix: str) -> None:
    async def known() -> tuple[list[ModelInfo], dict[str, str]]:
        """The models, and aliases to their names."""
        if services.store is None:
            return [bare_info(model.name) for model in await services.models.models()], {}
        models = await services.store.models()
        return model_infos(models, services.models.snapshot().models), aliases_of(models)

    @router.get(prefix + "/v1/models", summary="Models", response_model=ModelPage)
    async def get_models(
        limit: Annotated[int, Query(ge=1, le=limits.MAX_PAGE)] = 20,
        after_id: str | None = None,
        before_id: str | None = None,
    ) -> Response:
        """List the available models. Also at `/v1/models`, for requests with the header `anthropic-version`."""
        infos, _ = await known()
        return json_reply(page(infos, limit, after_id, before_id))

    @router.get(prefix + "/v1/models/{name:path}", summary="Model", response_model=ModelInfo)
    async def get_model(name: str) -> Response:
        """Get a model by name or alias. Also at `/v1/models/{name}`, for requests with `anthropic-version`."""
        infos, aliases = await known()
        found = find_info(name, infos, aliases)
        if found is None:
            raise await unknown_model(name, services.store)
        return json_reply(found)
