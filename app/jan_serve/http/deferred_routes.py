"""Routes that cost nothing until somebody asks for them.

FastAPI analyses the signature and the types of each route when it is added, and a second time for `include_router`. For
all our routes that takes longer than everything else at the start.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import cached_property, partial
from types import ModuleType
from typing import Any, Final, cast

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match, compile_path
from starlette.types import Receive, Scope, Send

from jan_serve.errors import Unavailable
from jan_serve.quick_imports import quick_imports

_CHOSEN: Final = "jan_serve.route"


class DeferredRoute(APIRoute):
    """An APIRoute that is analysed when something beyond its path and methods is first needed."""

    def __init__(
        self, path: str, endpoint: Callable[..., Any], *, methods: set[str] | list[str], **options: Any
    ) -> None:
        # All that `matches` reads.
        self.path = path
        self.endpoint = endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in methods}
        self._analyse = partial(super().__init__, path, endpoint, methods=methods, **options)

    def __getattr__(self, name: str) -> Any:
        """Called for attributes that are not there: those that the analysis sets."""
        analyse = self.__dict__.pop("_analyse", None)
        if analyse is None:
            raise AttributeError(name)
        with quick_imports(), _without_pydantic_1():
            analyse()
        return getattr(self, name)


@contextlib.contextmanager
def _without_pydantic_1() -> Generator[None]:
    """FastAPI would import pydantic 1, if this pydantic has it, to find that none of our types is from there."""
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    hidden = "pydantic.v1" not in modules
    if hidden:
        modules["pydantic.v1"] = None
    try:
        yield
    finally:
        if hidden:
            del modules["pydantic.v1"]


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
        partial_match: tuple[Match, Scope] = (Match.NONE, {})
        for route in self.routes:
            match, child_scope = route.matches(scope)
            child_scope.setdefault(_CHOSEN, route)  # deferred routes inside have chosen already
            if match is Match.FULL:
                return match, child_scope
            if match is Match.PARTIAL and partial_match[0] is Match.NONE:
                partial_match = match, child_scope
        return partial_match

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await scope[_CHOSEN].handle(scope, receive, send)


def all_routes(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """The routes in order, with deferred ones in their places."""
    for route in routes:
        if isinstance(route, DeferredRoutes):
            yield from all_routes(route.routes)
        else:
            yield route
