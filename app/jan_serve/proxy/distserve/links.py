"""Links between prefill and decode nodes, so that a decode node can fetch what a prefill node computed."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec

from jan_serve.fleet.node import CacheEpoch, Node, NodeState, Role
from jan_serve.http.errors import http_problem
from jan_serve.proxy.upstream.connection import Failure, NodeFailure
from jan_serve.proxy.upstream.node_address import known_url
from jan_serve.proxy.upstream.node_client import NodeClient

logger = logging.getLogger(__name__)

LINK_S: Final = 30.0
_CALL_S: Final = 20.0
_AT_ONCE: Final = 16
_SUCCESS: Final = 1
_RDMA: Final = {"with_gdr": True, "link_type": 2}
"""LMDeploy's defaults: RoCE with direct access. Nodes of jan-serve move states over TCP."""


class Pair(msgspec.Struct, frozen=True):
    """The starts of both nodes: a link ends with either of them."""

    prefill: CacheEpoch
    decode: CacheEpoch

    @property
    def is_over(self) -> bool:
        return self.prefill.is_over or self.decode.is_over


class PairLinks:
    """Event loop only. protocol: LMDeploy's number of the migration protocol."""

    def __init__(self, client: NodeClient, protocol: int) -> None:
        self._client = client
        self._protocol = protocol
        self._linked: set[Pair] = set()
        self._linking: dict[Pair, asyncio.Future[None]] = {}
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._kept: dict[tuple[str, int], tuple[Node, Node | None]] = {}

    def has(self, node: Node) -> bool:
        return any(node in (pair.prefill.node, pair.decode.node) for pair in self._linked)

    def are_linked(self, prefill: Node, decode: Node) -> bool:
        return Pair(prefill.cache, decode.cache) in self._linked

    async def connect(self, prefill: Node, decode: Node) -> None:
        """Link two nodes unless they are linked; at once for all who wait. Raises NodeFailure."""
        pair = Pair(prefill.cache, decode.cache)
        if pair in self._linked:
            return
        running = self._linking.get(pair)
        if running is None:
            running = self._linking[pair] = asyncio.ensure_future(self._connect(pair))
            running.add_done_callback(lambda done: self._finished(pair, done))
        await asyncio.shield(running)

    async def connect_all(self, nodes: Iterable[Node]) -> None:
        """Link every healthy prefill node with every healthy decode node. Raises HttpError that names failed pairs."""
        healthy = [node for node in nodes if node.state is NodeState.HEALTHY]
        sides = ([node for node in healthy if node.role is role] for role in (Role.PREFILL, Role.DECODE))
        pairs = list(itertools.product(*sides))
        results = await asyncio.gather(*(self.connect(*pair) for pair in pairs), return_exceptions=True)
        failed: list[str] = []
        for (prefill, decode), result in zip(pairs, results, strict=True):
            if isinstance(result, NodeFailure):
                failed.append(f"{prefill.name} and {decode.name}: the node {result.message}")
            elif isinstance(result, BaseException):
                raise result
        if failed:
            message = f"{len(failed)} of {len(pairs)} pairs are not linked. {'; '.join(failed[:10])}."
            raise http_problem(HTTPStatus.BAD_GATEWAY, "link_failed", message)

    async def drop(self, node: Node) -> None:
        """Undo the links of a node that leaves, as far as the nodes answer."""
        gone = [pair for pair in self._linked if node in (pair.prefill.node, pair.decode.node)]
        self._linked.difference_update(gone)
        ends = [(pair.prefill.node, pair.decode.node) for pair in gone]
        calls = [
            self._try_post(
                side, "/distserve/p2p_drop_connect", {"engine_id": side.url, "remote_engine_id": other.url}
            )
            for side, other in (*ends, *(pair[::-1] for pair in ends))
            if side.state is not NodeState.LOST
        ]
        await asyncio.gather(*calls)

    def keep(self, prefill: Node, session: int) -> None:
        """A prefill node keeps the state of a session until it is fetched."""
        self._kept[prefill.url, session] = prefill, None

    def sent_to(self, prefill: Node, session: int, decode: Node) -> None:
        self._kept[prefill.url, session] = prefill, decode

    def fetched(self, prefill: Node, session: int) -> None:
        """The state is gone from the prefill node."""
        self._kept.pop((prefill.url, session), None)

    async def free(self, prefill: Node, session: int) -> bool:
        """Have the prefill node drop a state. Whether it was known."""
        kept = self._kept.pop((prefill.url, session), None)
        if kept is None:
            return False
        body = {"remote_engine_id": kept[1].url if kept[1] is not None else "", "remote_session_id": session}
        await self._try_post(prefill, "/distserve/free_cache", body)
        return True

    async def free_lost(self) -> int:
        """Free the states that nobody will fetch: their decode node is lost. Returns their number."""
        lost = [
            (prefill, session)
            for (_, session), (prefill, decode) in self._kept.items()
            if decode is not None and decode.state is NodeState.LOST
        ]
        return sum(await asyncio.gather(*(self.free(prefill, session) for prefill, session in lost)))

    def _finished(self, pair: Pair, done: asyncio.Future[None]) -> None:
        del self._linking[pair]
        if not done.cancelled() and done.exception() is None and not pair.is_over:
            self._linked = {each for each in self._linked if not each.is_over} | {pair}

    async def _connect(self, pair: Pair) -> None:
        prefill, decode = pair.prefill.node, pair.decode.node
        async with self._turns:
            try:
                async with asyncio.timeout(LINK_S):
                    await self._link(prefill, decode)
            except TimeoutError:
                raise NodeFailure(Failure.TIMEOUT, f"was not linked within {LINK_S:g} s") from None
        logger.info("linked %s with %s", prefill.name, decode.name)

    async def _link(self, prefill: Node, decode: Node) -> None:
        layouts = [await self._layout(node) for node in (prefill, decode)]
        if layouts[0].get("tp_size") != layouts[1].get("tp_size"):
            raise NodeFailure(Failure.PROTOCOL, "has another tp_size than the node it is linked with")
        sides = ((prefill, decode, *layouts), (decode, prefill, *reversed(layouts)))
        offered = [
            await self._post(
                local,
                "/distserve/p2p_initialize",
                {
                    "protocol": self._protocol,
                    "local_engine_id": local.url,
                    "local_engine_config": own,
                    "remote_engine_id": remote.url,
                    "remote_engine_config": other,
                    "rank": None,
                    "tcp_config": None,
                    "rdma_config": _RDMA if self._protocol == 2 else None,
                    "nvlink_config": {} if self._protocol == 3 else None,
                },
            )
            for local, remote, own, other in sides
        ]
        for (local, remote, *_), answer in zip(sides, reversed(offered), strict=True):
            body = {
                "protocol": self._protocol,
                "remote_engine_id": remote.url,
                "remote_engine_endpoint_info": answer.get("engine_endpoint_info"),
                "remote_kvtransfer_endpoint_info": answer.get("kvtransfer_endpoint_info"),
            }
            await self._post(local, "/distserve/p2p_connect", body)

    async def _layout(self, node: Node) -> dict[str, Any]:
        status, content = await self._client.fetch_json(
            known_url(node.url), "GET", "/distserve/engine_info", limit_s=LINK_S
        )
        try:
            layout = msgspec.json.decode(content) if isinstance(content, str) else content
        except (msgspec.DecodeError, RecursionError):
            layout = None
        if status != HTTPStatus.OK or not isinstance(layout, dict):
            reason = f"({node.name}) answers /distserve/engine_info with status {status}"
            raise NodeFailure(Failure.PROTOCOL, reason)
        return cast(dict[str, Any], layout)

    async def _post(self, node: Node, path: str, body: object) -> dict[str, Any]:
        """Raises NodeFailure, also for an answer with a status that is not success."""
        url = known_url(node.url)
        status, content = await self._client.fetch_json(url, "POST", path, body, limit_s=_CALL_S)
        fields = cast(dict[str, Any], content) if isinstance(content, dict) else {}
        if status != HTTPStatus.OK or fields.get("status") != _SUCCESS:
            reason = fields.get("message")
            text = f": {reason[:300]}" if isinstance(reason, str) else f" (status {status})"
            raise NodeFailure(Failure.PROTOCOL, f"({node.name}) refuses {path}{text}")
        return fields

    async def _try_post(self, node: Node, path: str, body: object) -> None:
        try:
            await self._client.fetch_json(known_url(node.url), "POST", path, body, limit_s=_CALL_S)
        except NodeFailure as failure:
            logger.warning("node %s %s: %s was not done", node.name, failure.message, path)
