"""One request on its way to a node: choice, attempts, patience, answer, bookkeeping."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from starlette.types import Receive, Scope, Send

from jan_serve.core.transcript import ASKED, Asked
from jan_serve.dialects.outline import Route
from jan_serve.errors import JanServeError
from jan_serve.fleet.assignment import Assignment, Outcome
from jan_serve.fleet.attempts import MAX_REACHED, Attempts, Ending, RetryBudget
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Node, NodeState, Role
from jan_serve.fleet.prefixes import PromptKeys
from jan_serve.http.errors import HttpError, ending_problem
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.request_record import record_of
from jan_serve.proxy.answer_relay import AnswerRelay
from jan_serve.proxy.problems import node_failed
from jan_serve.proxy.request_facts import RequestFacts
from jan_serve.proxy.settings import ProxySettings
from jan_serve.proxy.upstream.connection import Failure, NodeFailure
from jan_serve.proxy.upstream.node_address import known_url
from jan_serve.proxy.upstream.node_client import Headers, NodeClient
from jan_serve.proxy.written_stream import KeptBytes, WrittenStream


class Patience:
    """Looks after so many seconds in the block, and again when a look says. Raises the NodeFailure of a look.

    Cheaper than `asyncio.timeout` in a generator, which every request would pay for.
    """

    __slots__ = ("_failure", "_loop", "_n_cancelled", "_next_look_s", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float, next_look_s: Callable[[], float]) -> None:
        self._seconds = seconds
        self._next_look_s = next_look_s
        self._failure: NodeFailure | None = None

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._n_cancelled = task, task.cancelling()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    def _look(self) -> None:
        try:
            self._timer = self._loop.call_later(self._next_look_s(), self._look)
        except NodeFailure as failure:
            self._failure = failure
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._failure is None:
            return
        is_ours = self._task.uncancel() <= self._n_cancelled
        if is_ours and kind is asyncio.CancelledError:
            raise self._failure from None


logger = logging.getLogger(__name__)

_ENDINGS: Final = {
    Failure.CONNECT: Ending.UNREACHED,
    Failure.RESET: Ending.RESET,
    Failure.SILENT: Ending.SILENT,
}
_ELSEWHERE: Final = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS}
)
_MAX_STICKY: Final = 10_000
_RESPONSE_ID: Final = re.compile(rb'"id"\s*:\s*"(resp_[A-Za-z0-9_-]{1,128})"')
_RESPONSE_PATH: Final = re.compile(r"/v1/responses/([A-Za-z0-9_-]{1,128})(?:/|\Z)")
_ID_BYTES: Final = 4096
_PING_S: Final = 5.0
_MOVE_PAUSE_S: Final = 0.5
"""Between searches for a node that goes on with a stream."""


class Call(msgspec.Struct, frozen=True):
    """A checked request. path: with the query, as sent. facts: None for requests without a body. asked: for its
    stream, so that it can move."""

    route: Route
    method: str
    path: str
    headers: Headers
    body: bytes
    facts: RequestFacts | None
    keys: PromptKeys
    asked: Asked
    role: Role = Role.HYBRID

    def sent(self, written: WrittenStream | None) -> tuple[Headers, bytes]:
        """Headers and body, for a node that goes on with a stream if there is one."""
        if written is None:
            return [*self.headers, (ASKED, self.asked.header)], self.body
        asked, log = written.rest(self.asked)
        return [*self.headers, (ASKED, asked.header)], log + self.body

    @property
    def model(self) -> str | None:
        return self.facts.model if self.facts is not None else None

    @property
    def stream(self) -> bool:
        return self.facts is not None and self.facts.stream


class ForwardCounts(msgspec.Struct):
    retries: int = 0
    exhausted: int = 0
    moved: int = 0
    broken: int = 0


@dataclass(eq=False, repr=False)
class Forwarder:
    """Event loop only. failed: called with nodes that could not be reached."""

    fleet: Fleet
    client: NodeClient
    settings: ProxySettings
    clock: Callable[[], float]
    lifecycle: Lifecycle
    failed: Callable[[Node], None]
    counts: ForwardCounts = field(init=False, default_factory=ForwardCounts)
    _budget: RetryBudget = field(init=False, default_factory=RetryBudget)
    kept: KeptBytes = field(init=False, default_factory=KeptBytes)
    _sticky: OrderedDict[str, str] = field(init=False, default_factory=OrderedDict[str, str])
    _passing: dict[Node, set[AnswerRelay]] = field(init=False, default_factory=dict[Node, set[AnswerRelay]])

    async def __call__(self, scope: Scope, send: Send, call: Call) -> None:
        """Answer the request. Raises HttpError and JanServeError before the answer has begun.

        Cancelling it cancels what the node does.
        """
        record = record_of(scope)
        record.model, record.stream = call.model, call.stream
        relay = await self.answer_of(call)
        await self.deliver(relay, call, scope, send)

    async def deliver(self, relay: AnswerRelay, call: Call, scope: Scope, send: Send) -> None:
        """Pass an answer on and count it; a stream that breaks goes on at other nodes."""
        record = record_of(scope)
        response = self._keep(relay) if call.route.sticky == "keeps" else None
        is_begun, losses, shown = False, 0, 0
        try:
            while True:
                outcome, failure = Outcome.LEFT, None
                following: AnswerRelay | None = None
                try:
                    if not is_begun:
                        is_begun = True
                        await relay.begin(send, record)
                    following = await self._passed_on(relay, call, scope, send)
                    if following is None:
                        outcome = _outcome_of(relay.exchange.head.status)
                        return
                except NodeFailure as error:
                    failure = error
                    outcome = Outcome.LEFT if error.kind is Failure.GAVE_UP else Outcome.FAILED
                finally:
                    prompt, cached = relay.tail.prompt_tokens, relay.tail.cached_tokens
                    self.close(relay, outcome, prompt, cached)
                    record.prompt_tokens, record.cached_tokens = prompt or 0, cached or 0
                written = relay.written
                if failure is not None:
                    name = relay.assignment.node.name
                    logger.warning("node %s %s, after its answer had begun", name, failure.message)
                    losses = 0 if written is None or written.shown > shown else losses + 1
                    following = await self._moved(call, relay, send) if losses < MAX_REACHED else None
                    if following is None:
                        self.counts.broken += 1
                        problem = node_failed(name, failure).problem
                        await relay.end_broken(scope, send, problem, record)
                        return
                assert following is not None and written is not None
                relay, shown = following, written.shown
                self.counts.moved += 1
                if response is not None:
                    self._sticky[response] = relay.assignment.node.url
        except asyncio.CancelledError:
            if not self.lifecycle.is_over:
                raise
            await relay.end_broken(scope, send, ending_problem(), record)
        finally:
            if relay.written is not None:
                relay.written.close()

    def leave(self, node: Node) -> None:
        """The streams of a node that is lost, or about to end, go on at others, where they can."""
        for relay in self._passing.get(node, ()):
            if relay.written is not None and relay.written.can_move:
                relay.exchange.connection.interrupt(NodeFailure(Failure.LEAVES, f"is {node.state.value}"))

    async def _passed_on(
        self, relay: AnswerRelay, call: Call, scope: Scope, send: Send
    ) -> AnswerRelay | None:
        """Pass an answer on to its end; None then. If its node leaves, returns the rest of the stream at another node;
        until one goes on, the stream is not given up here. Raises NodeFailure."""
        node, written = relay.assignment.node, relay.written
        self._passing.setdefault(node, set()).add(relay)
        try:
            while True:
                try:
                    await relay.pass_on(scope, send)
                    return None
                except NodeFailure as failure:
                    if failure.kind is not Failure.LEAVES:
                        raise
                if written is None or not written.can_move:
                    continue
                if node.state is NodeState.HEALTHY:
                    self.failed(node)  # a check tells its other streams
                with _pinging(send, written.pinging):
                    following, _ = await self._rest_elsewhere(call, written, [node])
                if following is not None:
                    logger.info("node %s leaves: its stream goes on at another one", node.name)
                    return following
        finally:
            self._passing[node].discard(relay)
            if not self._passing[node]:
                del self._passing[node]

    async def _rest_elsewhere(
        self, call: Call, written: WrittenStream, tried: Sequence[Node]
    ) -> tuple[AnswerRelay | None, Node | None]:
        """The rest of a stream, from another node with the same weights; otherwise the one that cannot ever give it."""
        strangers = [node for node in self.fleet if not node.counts_open]
        try:
            relay = await self.answer_of(call, tried=[*tried, *strangers], written=written)
        except (HttpError, JanServeError):
            return None, None
        status = relay.exchange.head.status
        if status == HTTPStatus.OK and written.opened(relay.exchange.head):
            relay.written = written
            return relay, None
        self.close(relay, _outcome_of(status))
        return None, None if status in _ELSEWHERE else relay.assignment.node

    async def _moved(self, call: Call, lost: AnswerRelay, send: Send) -> AnswerRelay | None:
        """The rest of a stream, from another node with the same weights, or the same one after its restart; None if
        there is none within the patience for a silent node."""
        written, until = lost.written, self.clock() + self.settings.patience_s
        if written is None or not written.can_move:
            return None
        self.failed(lost.assignment.node)
        refused: list[Node] = []
        tried = [lost.assignment.node]
        with _pinging(send, written.pinging):
            while len(refused) < MAX_REACHED:
                relay, refusing = await self._rest_elsewhere(call, written, [*tried, *refused])
                if relay is not None:
                    return relay
                if refusing is not None:
                    refused.append(refusing)
                    continue
                if self.clock() >= until:
                    return None
                await asyncio.sleep(_MOVE_PAUSE_S)
                tried.clear()
        return None

    def close(
        self, relay: AnswerRelay, outcome: Outcome, prompt: int | None = None, cached: int | None = None
    ) -> None:
        """Give back what an answer holds."""
        self.client.done(relay.exchange)
        relay.assignment.end(outcome, self.clock(), prompt_tokens=prompt, cached_tokens=cached)

    async def answer_of(
        self,
        call: Call,
        *,
        tried: Sequence[Node] = (),
        preferred: Node | None = None,
        written: WrittenStream | None = None,
    ) -> AnswerRelay:
        """The answer of a node, whose first bytes are there. The caller closes it. Raises HttpError, JanServeError.

        written: of a stream that the node goes on with.
        """
        attempts = Attempts(self._budget, self.clock(), tried)
        held: AnswerRelay | None = None
        problem: HttpError | None = None
        try:
            while True:
                try:
                    assignment = self._assign(call, attempts.tried, preferred)
                except JanServeError:
                    if held is None and problem is None:
                        raise
                    break
                self.counts.retries += attempts.asked > 0
                if held is not None:
                    self.close(held, _outcome_of(held.exchange.head.status))
                    held = None
                attempts.tried.append(assignment.node)
                try:
                    relay = await self._try(call, assignment, attempts, written)
                except NodeFailure as failure:
                    problem = node_failed(assignment.node.name, failure)
                    ending = _ENDINGS.get(failure.kind, Ending.FINAL)
                else:
                    if relay.exchange.head.status not in _ELSEWHERE:
                        return relay
                    held, ending = relay, Ending.REFUSED
                    if relay.exchange.head.is_end:
                        self.failed(assignment.node)
                        ending = Ending.UNREACHED
                if not attempts.may_go_on(ending, assignment, self.clock()):
                    break
            if held is not None:
                relay, held = held, None
                return relay
            assert problem is not None
            self.counts.exhausted += 1
            raise problem
        finally:
            if held is not None:
                self.close(held, Outcome.LEFT)

    def _assign(self, call: Call, failed: Sequence[Node], preferred: Node | None) -> Assignment:
        now = self.clock()
        if call.route.sticky == "follows":
            return self._follow(call, failed, now)
        if call.facts is not None and call.facts.previous is not None:
            preferred = self.fleet.find(self._sticky.get(call.facts.previous, "")) or preferred
        return self.fleet.assign(
            call.model,
            call.keys,
            now=now,
            role=call.role,
            streamed=call.stream,
            tried=failed,
            preferred=preferred,
        )

    def _follow(self, call: Call, failed: Sequence[Node], now: float) -> Assignment:
        """Choose the node that has the response; if it is not known, any one, which says so in its own words."""
        found = _RESPONSE_PATH.match(call.path.partition("?")[0])
        node = self.fleet.find(self._sticky.get(found[1], "")) if found is not None else None
        if node is not None and node not in failed:
            return self.fleet.assign_to(node, call.keys, now=now)
        return self.fleet.assign(None, now=now, tried=failed)

    async def _try(
        self, call: Call, assignment: Assignment, attempts: Attempts, written: WrittenStream | None
    ) -> AnswerRelay:
        """One attempt, up to the first bytes, for which a node that says that it works on them has any time. Raises
        NodeFailure."""
        try:
            limit_s = self.settings.first_byte_timeout_s
            patience_s = attempts.patience_s(assignment, self.settings.patience_s)

            def next_look_s() -> float:
                now = self.clock()
                left_s = limit_s - (now - assignment.worked_s)
                if left_s <= 0:
                    raise NodeFailure(Failure.TIMEOUT, f"sent nothing for {limit_s:g} s")
                if patience_s is None:
                    return left_s
                again_s = attempts.next_look_s(assignment, patience_s, self.fleet, call.model, call.role, now)
                if not again_s:
                    raise NodeFailure(Failure.SILENT, f"gave no sign of life for {patience_s:.0f} s")
                return min(left_s, again_s)

            first_look_s = limit_s if patience_s is None else min(limit_s, patience_s)
            async with Patience(first_look_s, next_look_s):
                return await self._first_bytes(call, assignment, written)
        except NodeFailure as failure:
            logger.info("node %s %s", assignment.node.name, failure.message)
            if failure.kind is not Failure.PROTOCOL:
                self.failed(assignment.node)
            assignment.end(Outcome.FAILED, self.clock())
            raise
        except BaseException:
            assignment.end(Outcome.LEFT, self.clock())
            raise

    async def _first_bytes(
        self, call: Call, assignment: Assignment, written: WrittenStream | None
    ) -> AnswerRelay:
        settings = self.settings
        headers, body = call.sent(written)
        exchange = await self.client.begin(
            known_url(assignment.node.url), call.method, call.path, headers, body, limit_s=None
        )
        relay = AnswerRelay(
            exchange, assignment, self.clock, read_s=settings.read_timeout_s, write_s=settings.write_timeout_s
        )
        try:
            await relay.read_first()
        except BaseException:
            exchange.connection.abort()
            raise
        if written is None:
            new = WrittenStream(self.kept)
            relay.written = new if new.opened(exchange.head) else None
        return relay

    def _keep(self, relay: AnswerRelay) -> str | None:
        """Remember where a stored response is, by the id near the beginning of its answer."""
        found = _RESPONSE_ID.search(relay.first[:_ID_BYTES])
        if found is None or relay.exchange.head.status != HTTPStatus.OK:
            return None
        response = found[1].decode()
        self._sticky[response] = relay.assignment.node.url
        while len(self._sticky) > _MAX_STICKY:
            self._sticky.popitem(last=False)
        return response


@contextmanager
def _pinging(send: Send, ping: bytes) -> Generator[None]:
    """The client of a stream hears at once, and then again, that its connection lives."""

    async def go_on() -> None:
        while True:
            await send({"type": "http.response.body", "body": ping, "more_body": True})
            await asyncio.sleep(_PING_S)

    task = asyncio.create_task(go_on())
    try:
        yield
    finally:
        task.cancel()


async def while_client_waits(receive: Receive, scope: Scope, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` in this task; a client that disconnects cancels it. Its body must have been read."""
    task = asyncio.current_task()
    assert task is not None
    is_over = False

    def left(watching: asyncio.Future[None]) -> None:
        if not is_over and not watching.cancelled():
            task.cancel()

    watching = asyncio.ensure_future(_until_gone(receive))
    watching.add_done_callback(left)
    try:
        await work
    except asyncio.CancelledError:
        if not watching.done() or watching.cancelled():
            raise
        task.uncancel()
        record_of(scope).cancelled = True
    finally:
        is_over = True
        watching.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _outcome_of(status: int) -> Outcome:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Outcome.FAILED
    return Outcome.REFUSED if status >= HTTPStatus.BAD_REQUEST else Outcome.DONE
