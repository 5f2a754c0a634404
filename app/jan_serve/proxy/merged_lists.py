"""Lists of models as protocols have them: what the nodes say, merged, each model once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.responses import Response

from jan_serve.dialects.outline import ModelList, Row
from jan_serve.errors import ModelNotFound
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Node
from jan_serve.http.replies import json_reply
from jan_serve.proxy.probes import MAX_LIST_BYTES, MAX_MODELS, is_model_name
from jan_serve.proxy.problems import node_failed
from jan_serve.proxy.upstream.connection import Failure, NodeFailure
from jan_serve.proxy.upstream.node_address import known_url
from jan_serve.proxy.upstream.node_client import NodeClient

LIST_S: Final = 3.0
KEPT_S: Final = 2.0
"""Programs ask again and again, and each question goes to many nodes."""
_AT_ONCE: Final = 64


class MergedLists:
    """Lives on the event loop only."""

    def __init__(self, fleet: Fleet, client: NodeClient, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._client = client
        self._clock = clock
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._asking: dict[str, asyncio.Task[list[Row]]] = {}
        self._found: dict[str, tuple[float, list[Row]]] = {}

    async def whole(self, route: ModelList, request: Request) -> Response:
        return json_reply(route.body(await self.rows(route), request.query_params))

    async def one(self, route: ModelList, name: str) -> Response:
        by_name = {row[route.name]: row for row in await self.rows(route)}
        names = (name,) if route.names is None else route.names(name)
        found = next((by_name[each] for each in names if each in by_name), None)
        if found is None:
            raise ModelNotFound(name)
        return json_reply(found)

    async def rows(self, route: ModelList) -> list[Row]:
        """All that ask meanwhile wait for one answer. Raises HttpError if no node says anything."""
        at_s, rows = self._found.get(route.path, (float("-inf"), []))
        if self._clock() - at_s < KEPT_S:
            return rows
        asking = self._asking.get(route.path)
        if asking is None:
            asking = self._asking[route.path] = asyncio.create_task(self._merged(route))
            asking.add_done_callback(partial(self._done, route))
        return await asyncio.shield(asking)

    def _done(self, route: ModelList, asking: asyncio.Task[list[Row]]) -> None:
        del self._asking[route.path]
        if not asking.cancelled() and asking.exception() is None:
            self._found[route.path] = self._clock(), asking.result()

    async def _merged(self, route: ModelList) -> list[Row]:
        listed: list[Row] = []
        failed: list[tuple[Node, NodeFailure]] = []
        has_answer = False
        left = [node for node in self._fleet if node.accepts(self._clock())]
        while left:
            asked = left if route.is_momentary else _with_all_models(left)
            left = [node for node in left if node not in asked]
            known: set[str] = set()
            answers = await asyncio.gather(*(self._ask(route, node) for node in asked))
            for node, found in zip(asked, answers, strict=True):
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

    async def _ask(self, route: ModelList, node: Node) -> list[Row] | NodeFailure | None:
        """None from a node that does not have the protocol."""
        try:
            async with self._turns:
                status, content = await self._client.fetch_json(
                    known_url(node.url),
                    "GET",
                    route.path + route.query,
                    limit_s=LIST_S,
                    max_bytes=MAX_LIST_BYTES,
                )
        except NodeFailure as failure:
            return failure
        if status == HTTPStatus.NOT_FOUND:
            return None
        rows = _rows_of(route, content) if status == HTTPStatus.OK else None
        if rows is None:
            reason = f"answers {route.path} with status {status} and no list of models"
            return NodeFailure(Failure.PROTOCOL, reason)
        return rows


def _with_all_models(nodes: Iterable[Node]) -> list[Node]:
    """Some of the nodes, which together have every model."""
    known: set[str] = set()
    chosen: list[Node] = []
    for node in nodes:
        if not known.issuperset(node.models):
            known.update(node.models)
            chosen.append(node)
    return chosen


def _rows_of(route: ModelList, content: Any) -> list[Row] | None:
    found = cast(dict[str, Any], content).get(route.member) if isinstance(content, dict) else None
    if not isinstance(found, list):
        return None
    rows = cast(list[Any], found)
    well_formed = all(isinstance(row, dict) and is_model_name(cast(Row, row).get(route.name)) for row in rows)
    return rows if well_formed and len(rows) <= MAX_MODELS else None
