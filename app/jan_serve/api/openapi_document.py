"""The OpenAPI document: FastAPI's, amended by the dialects and with the routes that need a key."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Final

from fastapi import FastAPI
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute

from jan_serve.dialects.dialect import Dialect
from jan_serve.http.deferred_routes import all_routes
from jan_serve.http.guards.auth import needs_key

_SCHEME: Final = "HTTPBearer"


def add_document(app: FastAPI, dialects: Sequence[Dialect], open_paths: Collection[str]) -> None:
    """Replace `app.openapi`, keeping its document as that does, and serve it."""
    generate = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        app.router.routes[:] = all_routes(app.router.routes)
        generated = generate()
        app.openapi_schema = None  # until it is whole
        for dialect in dialects:
            if dialect.amend_document is not None:
                dialect.amend_document(generated)
        _show_keys(generated, open_paths)
        app.openapi_schema = generated
        return generated

    app.openapi = document
    making = asyncio.Lock()

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        async with making:
            if app.openapi_schema is None:
                routes: list[BaseRoute] = []
                for route in all_routes(app.router.routes):
                    routes.append(route)
                    await asyncio.sleep(0)  # others are served between two routers that are made
                app.router.routes[:] = routes
            # It takes a second of pure Python: in a thread, others run meanwhile.
            return JSONResponse(await asyncio.to_thread(document))


def _show_keys(document: dict[str, Any], open_paths: Collection[str]) -> None:
    # The same on a server without a key, which accepts any.
    document.setdefault("components", {})["securitySchemes"] = {_SCHEME: {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if needs_key(method.upper(), path, open_paths):
                operation["security"] = [{_SCHEME: []}]
