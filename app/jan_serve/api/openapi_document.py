"""The OpenAPI document: FastAPI's, amended by the dialects and with the routes that need a key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from fastapi import FastAPI

from jan_serve.api.dialect import Dialect
from jan_serve.api.guards.auth import needs_key
from jan_serve.api.http.deferred_routes import all_routes

_SCHEME: Final = "HTTPBearer"


def document_of(
    app: FastAPI, dialects: Sequence[Dialect], open_paths: Collection[str]
) -> Callable[[], dict[str, Any]]:
    """A replacement for `app.openapi`, which keeps its document as that does."""
    generate = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        app.router.routes[:] = all_routes(app.router.routes)
        generated = generate()
        for dialect in dialects:
            if dialect.amend_document is not None:
                dialect.amend_document(generated)
        _show_keys(generated, open_paths)
        return generated

    return document


def _show_keys(document: dict[str, Any], open_paths: Collection[str]) -> None:
    # The same on a server without a key, which accepts any.
    document.setdefault("components", {})["securitySchemes"] = {_SCHEME: {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if needs_key(method.upper(), path, open_paths):
                operation["security"] = [{_SCHEME: []}]
