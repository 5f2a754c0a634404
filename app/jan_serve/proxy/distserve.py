"""DistServe: one node computes the prompt, another one the answer, which fetches the state over a link of both."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec
from starlette.types import Scope, Send

from jan_serve.errors import JanServeError
from jan_serve.fleet.assignment import Outcome
from jan_serve.fleet.attempts import MAX_REACHED
from jan_serve.fleet.node import CacheEpoch, Node, NodeState, Role
from jan_serve.http.errors import HttpError, http_problem
from jan_serve.http.request_record import record_of
from jan_serve.proxy.answer_relay import AnswerRelay
from jan_serve.proxy.forwarding import Call, Forwarder
from jan_serve.proxy.problems import node_failed
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


MAX_PREFILL_BYTES: Final = 8 << 20


class Prefilled(msgspec.Struct, frozen=True):
    """A computed prompt. session: by which the state is fetched."""

    node: Node
    session: int
    token: int
    blocks: list[int]


class DistServe:
    """Lives on the event loop only."""

    def __init__(self, forwarder: Forwarder, links: PairLinks) -> None:
        self.forwarder, self.links = forwarder, links
        self.fleet, self.settings, self.clock = forwarder.fleet, forwarder.settings, forwarder.clock

    async def __call__(self, scope: Scope, send: Send, call: Call) -> None:
        """Answer the request. Raises HttpError and JanServeError before the answer has begun."""
        record = record_of(scope)
        record.model, record.stream = call.model, call.stream
        _check_choices(call)
        decode_call = msgspec.structs.replace(call, role=Role.DECODE)
        decode = self.fleet.choose(call.model, call.keys, now=self.clock(), role=Role.DECODE)
        relay = None
        if self.settings.dummy_prefill:
            dummy = Prefilled(decode, 0, 0, [])
            body = _with(call, {"migration_request": self._migration(dummy, is_dummy=True)})
            relay = await self.forwarder.answer_of(msgspec.structs.replace(decode_call, body=body))
        elif self._is_short(decode_call, decode):
            relay = await self.forwarder.answer_of(decode_call, preferred=decode)
        if relay is not None:
            await self.forwarder.deliver(relay, decode_call, scope, send)
            return
        prefilled = await self._prefill(call, decode)
        is_fetched = False
        try:
            relay = await self._decode(decode_call, prefilled, decode)
            is_fetched = relay.exchange.head.status == HTTPStatus.OK
            if is_fetched:
                self.links.fetched(prefilled.node, prefilled.session)
            await self.forwarder.deliver(relay, decode_call, scope, send)
        finally:
            if not is_fetched:
                await self.links.free(prefilled.node, prefilled.session)

    def _is_short(self, call: Call, decode: Node) -> bool:
        """Whether moving a state would cost more than computing the rest of the prompt."""
        depth = self.fleet.index.depths(call.keys.keys, (decode,)).get(decode, 0)
        cached = call.keys.tokens_to(depth) * decode.trust
        return call.keys.tokens - cached < self.settings.short_prompt_tokens

    async def _prefill(self, call: Call, decode: Node) -> Prefilled:
        """Raises HttpError, JanServeError; then no node keeps a state."""
        limits = {"max_tokens": 1, "stream": False, "with_cache": True, "preserve_cache": True}
        facts = call.facts
        assert facts is not None
        has_limit = facts.body.get("max_completion_tokens") is not None
        fields: dict[str, Any] = limits | ({"max_completion_tokens": 1} if has_limit else {})
        body = _with(call, fields, without=("stream_options",))
        wanted = msgspec.structs.replace(
            call, role=Role.PREFILL, body=body, facts=msgspec.structs.replace(facts, stream=False)
        )
        tried: list[Node] = []
        problem: HttpError | None = None
        while True:
            try:
                relay = await self.forwarder.answer_of(wanted, tried=tried, preferred=self._linked(decode))
            except JanServeError:  # no node is left
                if problem is None:
                    raise
                raise problem from None
            node = relay.assignment.node
            tried.append(node)
            outcome = Outcome.LEFT
            try:
                prefilled = await self._read_prefilled(relay)
                outcome = Outcome.DONE
                return prefilled
            except NodeFailure as failure:
                outcome = Outcome.FAILED
                logger.warning("node %s %s", node.name, failure.message)
                problem = node_failed(node.name, failure)
                if len(tried) >= MAX_REACHED:
                    raise problem from None
            finally:
                self.forwarder.close(relay, outcome)

    def _linked(self, decode: Node) -> Node | None:
        """The least busy prefill node among those that are linked already."""
        now = self.clock()
        nodes = [
            node
            for node in self.fleet
            if node.role is Role.PREFILL and node.accepts(now) and self.links.are_linked(node, decode)
        ]
        return min(nodes, key=lambda node: node.pending_tokens / node.rate.tokens_per_s, default=None)

    async def _read_prefilled(self, relay: AnswerRelay) -> Prefilled:
        content = bytearray(relay.first)
        while part := await relay.exchange.connection.read(self.settings.read_timeout_s):
            content += part
            if len(content) > MAX_PREFILL_BYTES:
                reason = f"answers a prefill with more than {MAX_PREFILL_BYTES} bytes"
                raise NodeFailure(Failure.PROTOCOL, reason)
        status, node = relay.exchange.head.status, relay.assignment.node
        if status != HTTPStatus.OK:
            raise _refused(status, bytes(content), node)
        try:
            fields = cast(dict[str, Any], msgspec.json.decode(content, type=dict))
            session = int(fields["id"])
            tokens = cast(list[int] | None, fields.get("remote_token_ids")) or [0]
            blocks = cast(list[int] | None, fields.get("cache_block_ids")) or []
            prefilled = Prefilled(node, session, int(tokens[-1]), blocks)
        except (KeyError, TypeError, ValueError, RecursionError):
            raise NodeFailure(Failure.PROTOCOL, "does not say where the state of a prefill is") from None
        self.links.keep(node, session)
        return prefilled

    async def _decode(self, call: Call, prefilled: Prefilled, preferred: Node) -> AnswerRelay:
        """The answer of a decode node that is linked with the prefill node. Raises HttpError, JanServeError."""
        body = _with(call, {"migration_request": self._migration(prefilled, is_dummy=False)})
        tried: list[Node] = []
        while True:
            node = await self._linked_decode(call, prefilled, tried, preferred)
            self.links.sent_to(prefilled.node, prefilled.session, node)
            others = [each for each in self.fleet if each is not node]
            tried.append(node)
            try:
                relay = await self.forwarder.answer_of(
                    msgspec.structs.replace(call, body=body), tried=others, preferred=node
                )
            except HttpError:
                if len(tried) >= MAX_REACHED:
                    raise
                continue
            if relay.exchange.head.status < HTTPStatus.INTERNAL_SERVER_ERROR or len(tried) >= MAX_REACHED:
                return relay
            self.forwarder.close(relay, Outcome.FAILED)

    async def _linked_decode(
        self, call: Call, prefilled: Prefilled, tried: list[Node], preferred: Node
    ) -> Node:
        failed: list[Node] = [*tried]
        problem: HttpError | None = None
        for _ in range(MAX_REACHED):
            try:
                now, role = self.clock(), Role.DECODE
                node = self.fleet.choose(
                    call.model, call.keys, now=now, role=role, tried=failed, preferred=preferred
                )
            except JanServeError:
                if problem is None:
                    raise
                break
            try:
                await self.links.connect(prefilled.node, node)
                return node
            except NodeFailure as failure:
                failed.append(node)
                text = f"{prefilled.node.name} and {node.name} are not linked: a node {failure.message}."
                problem = http_problem(HTTPStatus.BAD_GATEWAY, "link_failed", text)
        assert problem is not None
        raise problem

    def _migration(self, prefilled: Prefilled, *, is_dummy: bool) -> dict[str, Any]:
        return {
            "protocol": self.settings.migration_protocol,
            "remote_engine_id": prefilled.node.url,
            "remote_session_id": prefilled.session,
            "remote_token_id": prefilled.token,
            "remote_block_ids": prefilled.blocks,
            "is_dummy_prefill": is_dummy,
        }


def _check_choices(call: Call) -> None:
    n = call.facts.body.get("n") if call.facts is not None else None
    if n not in (None, 1):
        raise http_problem(
            HTTPStatus.BAD_REQUEST, "invalid_request", "n: with DistServe there is one choice only"
        )


def _with(call: Call, fields: dict[str, Any], without: tuple[str, ...] = ()) -> bytes:
    """The client's body with these fields. Its order stays, so that a template sees the same tools."""
    assert call.facts is not None
    body = {name: value for name, value in call.facts.body.items() if name not in without}
    return msgspec.json.encode(body | fields)


def _refused(status: int, content: bytes, node: Node) -> Exception:
    """A refusal of the client's request is for the client; anything else is the node's failure."""
    if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
        try:
            message = cast(dict[str, Any], msgspec.json.decode(content, type=dict)).get("message")
        except (ValueError, RecursionError):
            message = None
        text = message if isinstance(message, str) else f"The node {node.name} refuses the request."
        return http_problem(status, "invalid_request", text[:2000])
    return NodeFailure(Failure.PROTOCOL, f"answers a prefill with status {status}")
