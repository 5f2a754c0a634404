"""The OpenAPI document: which routes ask for the key, for clients that are generated from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from jan_serve.api.guards.auth import asks_for_key

_SCHEME: Final = "HTTPBearer"


def with_keys(
    document_of: Callable[[], dict[str, Any]], open_paths: Iterable[str]
) -> Callable[[], dict[str, Any]]:
    """A way to get the document, as FastAPI keeps it, that names the header of the key; without a key any is taken."""
    opened = frozenset(open_paths)

    def document() -> dict[str, Any]:
        found = document_of()
        found.setdefault("components", {})["securitySchemes"] = {
            _SCHEME: {"type": "http", "scheme": "bearer"}
        }
        for path, operations in found["paths"].items():
            for method, operation in operations.items():
                if asks_for_key(method.upper(), path, opened):
                    operation["security"] = [{_SCHEME: []}]
        return found

    return document
