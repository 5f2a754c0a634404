"""GET /logs: the lines that are kept, the next ones as they come, and the end of both."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from jan_serve.api.app import create_app
from jan_serve.api.routes.log import RecentLog, recent_log
from tests.support.engine.fake_client import FakeModels
from tests.support.helpers.compiling import translate_inline
from tests.support.helpers.rendering import render_inline
from tests.support.servers.fronts import NoShutdown, make_settings, serve_app

pytestmark = pytest.mark.anyio


def say(log: RecentLog, level: int, message: str, **fields: Any) -> None:
    log.handle(
        logging.makeLogRecord(
            {
                "levelno": level,
                "levelname": logging.getLevelName(level),
                "name": "x",
                "msg": message,
                **fields,
            }
        )
    )


@asynccontextmanager
async def client(log: RecentLog) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of a server on a socket: streams end only there."""
    models: Any = NoShutdown(FakeModels())
    app = create_app(make_settings(), models, render_inline, translate_inline, log=log)
    async with (
        serve_app(app, models) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as found,
    ):
        yield found


async def events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line[6:])


async def test_the_last_lines() -> None:
    log = RecentLog(kept=3)
    for number in range(5):
        say(log, logging.INFO, f"line {number}", model="m", odd={1, 2} if number == 4 else float("nan"))
    async with client(log) as server:
        lines = (await server.get("/logs")).json()["lines"]
        assert [line["message"] for line in lines] == ["line 2", "line 3", "line 4"]
        assert lines[2] | {"time": ""} == {
            "time": "",
            "level": "info",
            "logger": "x",
            "message": "line 4",
            "model": "m",
            "odd": "{1, 2}",
        }
        assert [line["message"] for line in (await server.get("/logs?lines=1")).json()["lines"]] == ["line 4"]
        assert (await server.get("/logs?lines=0")).json() == {"lines": []}
        for wrong in ("lines=-1", "lines=99999", "level=loud"):
            assert (await server.get(f"/logs?{wrong}")).status_code == 422


async def test_levels() -> None:
    log = RecentLog()
    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        say(log, level, "x")
    async with client(log) as server:
        lines = (await server.get("/logs?level=warning")).json()["lines"]
        assert [line["level"] for line in lines] == ["warning", "error"]


async def test_following() -> None:
    log = RecentLog()
    say(log, logging.INFO, "before")
    async with client(log) as server:
        async with server.stream("GET", "/logs?follow=true&level=info") as response:
            found = events(response)
            assert (await anext(found))["message"] == "before"
            say(log, logging.DEBUG, "not this")
            say(log, logging.INFO, "after")
            assert (await anext(found))["message"] == "after"
        async with server.stream("GET", "/logs?follow=true&lines=0") as response:
            found = events(response)
            say(log, logging.ERROR, "new")
            assert (await anext(found))["message"] == "new"


async def test_a_server_that_stops_ends_its_followers() -> None:
    log = RecentLog()
    say(log, logging.INFO, "before")
    async with httpx.AsyncClient(timeout=10) as free, contextlib.AsyncExitStack() as open_stream:
        async with client(log) as server:
            response = await open_stream.enter_async_context(
                free.stream("GET", f"{server.base_url}/logs?follow=true")
            )
            found = events(response)
            assert (await anext(found))["message"] == "before"
            health = (await server.get("/health")).json()
            assert (health["state"], health["open_requests"]) == ("ready", 0)
            rest = asyncio.create_task(rest_of(found))
        assert all(event["message"] != "before" for event in await rest)


async def rest_of(found: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event async for event in found]


logger = logging.getLogger("jan_serve.test")


def test_it_hears_what_the_log_hears() -> None:
    with recent_log() as log:
        logger.warning("first %s", "one", extra={"model": "m"})
        try:
            raise ValueError("wrong")
        except ValueError:
            logger.exception("second" * 10_000)
    logger.warning("afterwards")
    first, second = log.entries()
    assert (first.content["message"], first.content["model"], first.number) == ("first one", "m", 1)
    assert "ValueError: wrong" in second.content["traceback"]
    assert len(second.content["message"]) < 21_000
    assert log.entries(after=1) == [second]
