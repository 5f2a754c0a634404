"""Routers that are made when somebody asks for one of their paths."""

from __future__ import annotations

import gc

import pytest
from fastapi import APIRouter, FastAPI
from starlette.testclient import TestClient

from jan_serve.errors import Unavailable
from jan_serve.http.deferred_routes import DeferredRoutes, all_routes


def _router() -> APIRouter:
    router = APIRouter()

    @router.get("/first/{number}")
    async def first(number: int) -> dict[str, int]:
        return {"number": number}

    @router.post("/second")
    async def second(body: list[int]) -> int:
        return sum(body)

    return router


def _app(*routes: object) -> FastAPI:
    app = FastAPI()
    app.router.routes.extend(routes)  # pyright: ignore[reportArgumentType]
    return app


def test_the_collector_does_not_visit_what_a_router_made() -> None:
    routes, frozen = DeferredRoutes(_router), gc.get_freeze_count()
    assert TestClient(_app(routes)).get("/first/7").json() == {"number": 7}
    assert gc.get_freeze_count() > frozen
    assert gc.isenabled()


def test_a_router_is_made_once_for_the_first_path_that_no_route_before_has() -> None:
    made: list[APIRouter] = []

    def make() -> APIRouter:
        made.append(_router())
        return made[-1]

    before = APIRouter()

    @before.get("/before")
    async def answer() -> str:
        return "before"

    client = TestClient(_app(*before.routes, DeferredRoutes(make)))
    assert client.get("/before").json() == "before"
    assert made == []
    assert client.get("/first/1").json() == {"number": 1}
    assert client.post("/second", json=[4]).json() == 4
    assert client.get("/second").status_code == 405
    assert client.get("/none").status_code == 404
    assert len(made) == 1


def test_a_path_that_is_not_below_its_paths_does_not_make_the_router() -> None:
    def make() -> APIRouter:
        raise AssertionError("made")

    client = TestClient(
        _app(DeferredRoutes(make, ("/other", "/")), DeferredRoutes(_router, ("/first", "/second")))
    )
    assert client.get("/first/1").json() == {"number": 1}
    assert client.post("/second", json=[4]).json() == 4
    assert client.get("/others").status_code == 404


def test_deferred_routes_may_be_inside_others() -> None:
    outer = APIRouter()
    outer.routes.append(DeferredRoutes(_router))
    client = TestClient(_app(DeferredRoutes(lambda: outer)))
    assert client.get("/first/1").json() == {"number": 1}
    assert client.get("/second").status_code == 405
    assert client.get("/none").status_code == 404


def test_all_routes_are_in_order() -> None:
    inner, outer = _router(), _router()
    inner.routes.append(DeferredRoutes(lambda: outer))
    listed = list(all_routes([DeferredRoutes(lambda: inner)]))
    assert listed == [*inner.routes[:2], *outer.routes]


def test_modules_that_cannot_be_read_now_are_tried_again() -> None:
    failures = [OSError(24, "Too many open files")]

    def make() -> APIRouter:
        if failures:
            raise failures.pop()
        return _router()

    routes = DeferredRoutes(make)
    with pytest.raises(Unavailable, match="Too many open files"):
        _ = routes.routes
    assert len(routes.routes) == 2
