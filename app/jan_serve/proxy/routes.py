"""The routes that go on to a node: those of all protocols."""

from __future__ import annotations

from collections.abc import Sequence

from jan_serve.dialects.head import Head, Route
from jan_serve.dialects.heads import HEADS


class RouteTable:
    def __init__(self, heads: Sequence[Head] = HEADS) -> None:
        routes = [(route, head) for head in heads for route in head.forwarded]
        self._exact = {each[0].pattern: each for each in routes if not each[0].pattern.endswith("/*")}
        self._prefixes = [each for each in routes if each[0].pattern.endswith("/*")]

    def find(self, path: str) -> tuple[Route, Head] | None:
        """A path with `.` or `..` steps has no route: it could leave its prefix at the node."""
        found = self._exact.get(path)
        if found is not None:
            return found
        if any(step in (".", "..") for step in path.split("/")) or "\\" in path:
            return None
        return next((each for each in self._prefixes if path.startswith(each[0].pattern[:-1])), None)
