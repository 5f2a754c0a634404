"""Passes a node's answer on to the client, as it comes, and finds the token counts in its last bytes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec
from starlette.types import Scope, Send

from jan_serve.fleet.assignment import Assignment
from jan_serve.http.disconnect import abort_connection
from jan_serve.http.errors import Problem, form_path
from jan_serve.http.request_record import RequestRecord
from jan_serve.proxy.problems import end_of_broken
from jan_serve.proxy.relay_headers import to_client
from jan_serve.proxy.upstream.connection import HIGH_WATER, Failure, NodeFailure
from jan_serve.proxy.upstream.node_client import Exchange
from jan_serve.proxy.written_stream import WrittenStream

TAIL_BYTES: Final = 4096
_PROMPT: Final = re.compile(rb'(?<!\\)"(?:prompt_tokens|input_tokens|prompt_eval_count)"\s*:\s*(\d{1,12})')
_CACHED: Final = re.compile(rb'(?<!\\)"(?:cached_tokens|cache_read_input_tokens|cache_n)"\s*:\s*(\d{1,12})')
_BESIDE: Final = re.compile(rb'(?<!\\)"cache_read_input_tokens"\s*:\s*(\d{1,12})')
"""Anthropic counts these beside `input_tokens`; the others count them within the prompt."""


class UsageTail:
    """Add every part of an answer. last: the last bytes that were added."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = b""

    def add(self, data: bytes) -> None:
        self.last = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self.last + data)[-TAIL_BYTES:]

    @property
    def prompt_tokens(self) -> int | None:
        found = self._found(_PROMPT)
        return None if found is None else found + (self._found(_BESIDE) or 0)

    @property
    def cached_tokens(self) -> int | None:
        return self._found(_CACHED)

    def _found(self, pattern: re.Pattern[bytes]) -> int | None:
        found = pattern.findall(self.last)
        return int(found[-1]) if found else None


@dataclass(eq=False, repr=False)
class AnswerRelay:
    """The first bytes are read before the client gets anything, so that another node can be asked until then.

    The node is read only as fast as the client reads. A client that takes nothing for `write_s` is disconnected.
    written: of a stream that can go on at another node.
    """

    exchange: Exchange
    assignment: Assignment
    clock: Callable[[], float]
    read_s: float
    write_s: float
    written: WrittenStream | None = None
    tail: UsageTail = field(init=False, default_factory=UsageTail)
    first: bytes = field(init=False, default=b"")

    async def read_first(self) -> None:
        """Wait for the first bytes of the body, or for all of a whole answer that is short. Raises NodeFailure."""
        connection, length = self.exchange.connection, self.exchange.head.header(b"content-length")
        self.first = await connection.read(None)
        self._heard()
        if length is not None and len(length) < 9 and int(length) <= HIGH_WATER:
            while not connection.is_read:
                self.first += await connection.read(self.read_s)
                self._heard()

    def _heard(self) -> None:
        now = self.clock()
        self.assignment.node.heard_s = now
        self.assignment.begin_answer(now)

    async def begin(self, send: Send, record: RequestRecord) -> None:
        """Send the head to the client."""
        head = self.exchange.head
        record.first_token_s = record.elapsed_s()
        headers = to_client(head.headers, self.assignment.node.name)
        await send({"type": "http.response.start", "status": head.status, "headers": headers})

    async def pass_on(self, scope: Scope, send: Send) -> None:
        """Pass the body on, as far as it has not been. Raises NodeFailure if it breaks, and once if its node leaves."""
        connection = self.exchange.connection
        shown, is_last = b"", False
        try:
            data, self.first = self.first or await connection.read(self.read_s), b""
            while data:
                shown = data if self.written is None else self.written.read(data)
                self.tail.add(shown)
                is_last = connection.is_read and (self.written is None or self.written.is_whole)
                if shown:
                    async with asyncio.timeout(self.write_s):
                        await send({"type": "http.response.body", "body": shown, "more_body": not is_last})
                if self.written is not None and self.written.leaves and not is_last:
                    self.written.leaves = False
                    raise NodeFailure(Failure.LEAVES, "is about to end")
                data = b"" if connection.is_read else await connection.read(self.read_s)
                self._heard()
        except TimeoutError:
            abort_connection(scope)
            raise asyncio.CancelledError from None
        if self.written is not None:
            self.written.check_end()
        if not is_last or not shown:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def end_broken(self, scope: Scope, send: Send, problem: Problem, record: RequestRecord) -> None:
        """A stream gets an error in its protocol's form; any other answer, and one of announced length, is cut."""
        record.error = problem.code
        problem = msgspec.structs.replace(problem, request_id=record.request_id)
        head, written = self.exchange.head, self.written
        media_type = head.header(b"content-type") or b""
        ending = end_of_broken(form_path(scope), media_type, self.tail.last, problem)
        if written is not None and written.failure:
            ending = written.failure
        if ending is None or head.header(b"content-length") is not None:
            abort_connection(scope)
            return
        await send({"type": "http.response.body", "body": ending, "more_body": False})
