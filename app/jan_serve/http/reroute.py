"""Requests that another path serves."""

from __future__ import annotations

from starlette.types import Scope


def reroute(scope: Scope, path: str) -> None:
    """Serve the request at this path, in place: the log line, the metrics and the form of errors follow it."""
    scope["path"], scope["raw_path"] = path, path.encode()
