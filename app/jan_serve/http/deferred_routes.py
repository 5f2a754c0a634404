"""Routes that are imported and analysed by the first request that may be for one of them.

FastAPI analyses the signature and the types of each route when it is added, which takes up to two milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Final

from fastapi import APIRouter
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from jan_serve.errors import Unavailable
from jan_serve.quick_imports import quick_imports

_CHOSEN: Final = "jan_serve.route"


class DeferredRoutes(BaseRoute):
    """The routes of a router that is imported and made for the first path which no route before them has."""

    def __init__(self, make: Callable[[], APIRouter], paths: tuple[str, ...] = ("",)) -> None:
        """paths: each path of the router is one of these or below one. For others it is not made."""
        self._make = make
        self._paths = frozenset(paths)
        self._folders = tuple(f"{path}/" for path in paths)

    @cached_property
    def routes(self) -> list[BaseRoute]:
        """Raises Unavailable if its modules cannot be read now; the next call tries again."""
        try:
            with quick_imports():
                return self._make().routes
        except OSError as error:
            raise Unavailable(f"The server cannot read its own files: {error.strerror}.") from error

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path: str = scope["path"]
        if path not in self._paths and not path.startswith(self._folders):
            return Match.NONE, {}
        found: tuple[Match, Scope] = (Match.NONE, {})
        for route in self.routes:
            match, child_scope = route.matches(scope)
            child_scope.setdefault(_CHOSEN, route)  # deferred routes inside have chosen already
            if match.value > found[0].value:
                found = match, child_scope
            if match is Match.FULL:
                break
        return found

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope[_CHOSEN].handle(scope, receive, send)


def all_routes(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """The routes in order, with deferred ones in their places."""
    for route in routes:
        if isinstance(route, DeferredRoutes):
            yield from all_routes(route.routes)
        else:
            yield route
