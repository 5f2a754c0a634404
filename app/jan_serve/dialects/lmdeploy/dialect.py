"""What the server needs of this protocol."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter
from starlette.middleware import Middleware

from jan_serve.config import Settings
from jan_serve.dialects.dialect import Dialect, Services
from jan_serve.dialects.lmdeploy.metrics import LmdeployMetrics
from jan_serve.dialects.lmdeploy.outline import LMDEPLOY_PATH, OUTLINE, SHARED_PATH, is_lmdeploy_body
from jan_serve.dialects.shared.body_dispatch import BodyDispatch


def lmdeploy_dialect(_: Settings, services: Services) -> Dialect:
    """Its metrics count the requests of all dialects."""
    metrics = services.metrics
    metrics.observers.append(LmdeployMetrics(metrics.registry, services.models.snapshot).observe)

    def router() -> APIRouter:
        from jan_serve.dialects.lmdeploy.routes import lmdeploy_router

        return lmdeploy_router(services)

    dispatch = Middleware(BodyDispatch, shared=SHARED_PATH, other=LMDEPLOY_PATH, is_other=is_lmdeploy_body)
    return Dialect(OUTLINE, router, middleware=(dispatch,), amend_document=show_both_protocols)


_Object = dict[str, Any]


def show_both_protocols(document: _Object) -> None:
    """Merge the bodies and responses of both into the shared route, if both are served."""
    paths: _Object = document["paths"]
    shared, other = (paths.get(path, {}).get("post") for path in (SHARED_PATH, LMDEPLOY_PATH))
    if shared is not None and other is not None:
        paths[SHARED_PATH]["post"] = _both(shared, other)


def _both(shared: _Object, other: _Object) -> _Object:
    responses: dict[str, list[_Object]] = {
        status: [] for status in sorted({*shared["responses"], *other["responses"]})
    }
    for operation in (shared, other):
        for status, answer in operation["responses"].items():
            responses[status].append(answer)
    return {
        **shared,
        "tags": [*shared["tags"], *other["tags"]],
        "description": "With `inputs` this is Text Generation Inference's route: "
        f"{shared['description']} With `prompt` or `input_ids` it is LMDeploy's: {other['description']}",
        "requestBody": {**shared["requestBody"], **_contents([shared["requestBody"], other["requestBody"]])},
        "responses": {
            status: {
                "description": "; ".join(dict.fromkeys(answer["description"] for answer in answers)),
                **_contents(answers),
            }
            for status, answers in responses.items()
        },
    }


def _contents(holders: Iterable[_Object]) -> _Object:
    """Contents by media type, if any. Where both have one, either schema fits; without a schema, anything does."""
    contents: _Object = {}
    for holder in holders:
        for kind, media in holder.get("content", {}).items():
            if kind in contents:
                schemas = [each["schema"] for each in (contents[kind], media) if "schema" in each]
                contents[kind] = {"schema": {"anyOf": schemas}} if len(schemas) == 2 else {}
            else:
                contents[kind] = media
    return {"content": contents} if contents else {}
