"""The OpenAPI document: which routes need the key, for clients that are generated from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from jan_serve.api.guards.auth import asks_for_key

_SCHEME: Final = "HTTPBearer"


def show_keys(document: dict[str, Any], open_paths: Iterable[str]) -> None:
    """Name the header of the key. The document is the same on a server without one, which accepts any."""
    opened = frozenset(open_paths)
    document.setdefault("components", {})["securitySchemes"] = {_SCHEME: {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if asks_for_key(method.upper(), path, opened):
                operation["security"] = [{_SCHEME: []}]
