"""Lists of models in other protocols than LMDeploy's: what the nodes say, merged, each model once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.anthropic import paths as anthropic_paths
from jan_serve.dialects.anthropic.claude_names import names_for
from jan_serve.dialects.anthropic.limits import MAX_PAGE
from jan_serve.dialects.anthropic.models.render import page
from jan_serve.errors import InvalidRequest, ModelNotFound
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Node
from jan_serve.http.replies import json_reply
from jan_serve.proxy.discovery import MAX_LIST_BYTES, MAX_MODELS, is_model_name, key_headers
from jan_serve.proxy.problems import node_failed
from jan_serve.proxy.upstream.connection import Failure, NodeFailure
from jan_serve.proxy.upstream.node_client import NodeClient
from jan_serve.proxy.upstream.node_url import known_url

Row = dict[str, Any]

LIST_S: Final = 3.0
KEPT_S: Final = 2.0
"""Programs ask again and again, and each question goes to many nodes."""
_AT_ONCE: Final = 64


class ListRoute(msgspec.Struct, frozen=True):
    """path: at the proxy and its nodes. member: of the body that has the rows. name: of a row. rank: rows of a higher
    one come first, and of several rows for a model the first one counts. is_momentary: it tells what each node does
    now, so that all are asked; else only as many as have all models."""

    path: str
    member: str
    name: str
    rank: Callable[[Row], Any] = lambda row: 0
    is_momentary: bool = False
    query: str = ""


TAGS: Final = ListRoute("/api/tags", "models", "name", lambda row: str(row.get("modified_at")))
LOADED: Final = ListRoute(
    "/api/ps", "models", "name", lambda row: str(row.get("expires_at")), is_momentary=True
)
LM_STUDIO: Final = ListRoute(
    "/api/v0/models", "data", "id", lambda row: row.get("state") == "loaded", is_momentary=True
)
ANTHROPIC: Final = ListRoute(f"{anthropic_paths.PREFIX}/v1/models", "data", "id", query=f"?limit={MAX_PAGE}")


class MergedLists:
    """Event loop only."""

    def __init__(self, fleet: Fleet, client: NodeClient, key: str | None, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._client = client
        self._key = key
        self._clock = clock
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._asking: dict[str, asyncio.Task[list[Row]]] = {}
        self._found: dict[str, tuple[float, list[Row]]] = {}

    async def tags(self, request: Request) -> Response:
        return json_reply({"models": await self.rows(TAGS)})

    async def loaded(self, request: Request) -> Response:
        return json_reply({"models": await self.rows(LOADED)})

    async def lm_studio(self, request: Request) -> Response:
        return json_reply({"object": "list", "data": await self.rows(LM_STUDIO)})

    async def lm_studio_model(self, name: str) -> Response:
        return json_reply(await self._row(LM_STUDIO, name, (name,)))

    async def anthropic(self, request: Request) -> Response:
        """A page of it. Raises InvalidRequest."""
        query = request.query_params
        limit = query.get("limit", "20")
        if not (limit.isascii() and limit.isdigit() and len(limit) < 5 and 1 <= int(limit) <= MAX_PAGE):
            raise InvalidRequest(f"limit: must be a number from 1 to {MAX_PAGE}", param="limit")
        rows = cast(Any, await self.rows(ANTHROPIC))
        return json_reply(page(rows, int(limit), query.get("after_id"), query.get("before_id")))

    async def anthropic_model(self, name: str) -> Response:
        return json_reply(await self._row(ANTHROPIC, name, names_for(name)))

    async def rows(self, route: ListRoute) -> list[Row]:
        """All that ask meanwhile wait for one answer. Raises HttpError if no node says anything."""
        at_s, rows = self._found.get(route.path, (float("-inf"), []))
        if self._clock() - at_s < KEPT_S:
            return rows
        asking = self._asking.get(route.path)
        if asking is None:
            asking = self._asking[route.path] = asyncio.create_task(self._merged(route))
            asking.add_done_callback(partial(self._done, route))
        return await asyncio.shield(asking)

    def _done(self, route: ListRoute, asking: asyncio.Task[list[Row]]) -> None:
        del self._asking[route.path]
        if not asking.cancelled() and asking.exception() is None:
            self._found[route.path] = self._clock(), asking.result()

    async def _row(self, route: ListRoute, name: str, names: Iterable[str]) -> Row:
        by_name = {row[route.name]: row for row in await self.rows(route)}
        found = next((by_name[each] for each in names if each in by_name), None)
        if found is None:
            raise ModelNotFound(name)
        return found

    async def _merged(self, route: ListRoute) -> list[Row]:
        listed: list[Row] = []
        failed: list[tuple[Node, NodeFailure]] = []
        has_answer = False
        left = [node for node in self._fleet if node.accepts(self._clock())]
        while left:
            asked = left if route.is_momentary else _with_all_models(left)
            left = [node for node in left if node not in asked]
            known: set[str] = set()
            for node, found in zip(
                asked, await asyncio.gather(*(self._ask(route, node) for node in asked)), strict=True
            ):
                if isinstance(found, NodeFailure):
                    failed.append((node, found))
                    continue
                has_answer = True
                if found is not None:
                    known.update(node.models)
                    listed += found
            left = [node for node in left if not known.issuperset(node.models)]
        if failed and not has_answer:
            node, failure = failed[0]
            raise node_failed(node.name, failure)
        listed.sort(key=route.rank, reverse=True)
        rows: dict[str, Row] = {}
        for row in listed:
            rows.setdefault(row[route.name], row)
        return list(rows.values())

    async def _ask(self, route: ListRoute, node: Node) -> list[Row] | NodeFailure | None:
        """None from a node that does not have the protocol."""
        try:
            async with self._turns:
                status, content = await self._client.fetch_json(
                    known_url(node.url),
                    "GET",
                    route.path + route.query,
                    key_headers(self._key),
                    limit_s=LIST_S,
                    max_bytes=MAX_LIST_BYTES,
                )
        except NodeFailure as failure:
            return failure
        if status == HTTPStatus.NOT_FOUND:
            return None
        rows = _rows_of(route, content) if status == HTTPStatus.OK else None
        return (
            rows
            if rows is not None
            else NodeFailure(
                Failure.PROTOCOL, f"answers {route.path} with status {status} and no list of models"
            )
        )


def _with_all_models(nodes: Iterable[Node]) -> list[Node]:
    """Some of the nodes, which together have every model."""
    known: set[str] = set()
    chosen: list[Node] = []
    for node in nodes:
        if not known.issuperset(node.models):
            known.update(node.models)
            chosen.append(node)
    return chosen


def _rows_of(route: ListRoute, content: Any) -> list[Row] | None:
    found = cast(dict[str, Any], content).get(route.member) if isinstance(content, dict) else None
    if not isinstance(found, list):
        return None
    rows = cast(list[Any], found)
    well_formed = all(isinstance(row, dict) and is_model_name(cast(Row, row).get(route.name)) for row in rows)
    return rows if well_formed and len(rows) <= MAX_MODELS else None
