"""A request in DistServe: prefill at one node, then the answer from another, which fetches the state."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec
from starlette.types import Scope, Send

from jan_serve.errors import JanServeError
from jan_serve.fleet.attempts import MAX_REACHED
from jan_serve.fleet.fleet import Outcome
from jan_serve.fleet.node import Node, Role
from jan_serve.http.errors import HttpError, http_problem
from jan_serve.http.request_record import record_of
from jan_serve.proxy.answer_relay import AnswerRelay
from jan_serve.proxy.distserve.links import PairLinks
from jan_serve.proxy.forwarding import Call, Forwarder
from jan_serve.proxy.problems import node_failed
from jan_serve.proxy.upstream.connection import Failure, NodeFailure

logger = logging.getLogger(__name__)

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
