"""What paths say: which are the page's, which are below others, and which another one serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from starlette.types import Scope

T = TypeVar("T")


PAGE_PATH: Final = "/"
ASSETS_PATH: Final = "/assets/"


def is_page_path(method: str, path: str) -> bool:
    """Whether a request is for the page or an asset."""
    return method in ("GET", "HEAD") and (path == PAGE_PATH or path.startswith(ASSETS_PATH))


def is_below(path: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a path is one of the prefixes, or continues one after a `/`."""
    return any(path == prefix or path.startswith(prefix + "/") for prefix in prefixes)


class ByPrefix(Generic[T]):
    """Values by path. The longest prefix wins; a prefix covers whole path segments, and "/" the root alone."""

    def __init__(self, values: Mapping[str, T], default: T) -> None:
        """values: by path prefix. default: for all other paths."""
        self._values = sorted(values.items(), key=lambda item: len(item[0]), reverse=True)
        self._default = default

    def __getitem__(self, path: str) -> T:
        found = (
            value
            for prefix, value in self._values
            if path == prefix or (prefix != "/" and path.startswith(prefix + "/"))
        )
        return next(found, self._default)


def reroute(scope: Scope, path: str) -> None:
    """Serve the request at this path, in place: the log line, the metrics and the form of errors follow it."""
    scope["path"], scope["raw_path"] = path, path.encode()
