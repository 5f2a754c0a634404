"""A cache of compiled constraints and tool calls, and of their refusals. The compiling process does the work."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.core.constraint import (
    CallFrame,
    CallGrammars,
    CompiledGrammar,
    Constraint,
    Explanation,
    GbnfConstraint,
    GrammarPiece,
    JsonObjectConstraint,
    JsonSchemaConstraint,
    PropertyOrder,
    RegexConstraint,
    ToolGrammar,
    Whitespace,
)
from jan_serve.core.messages import Tool
from jan_serve.errors import GrammarTooComplex, InvalidRequest, JanServeError, error_from_payload
from jan_serve.generation.constraint.compile_tools import compile_tools
from jan_serve.generation.ports import ConstraintTranslator
from jan_serve.helpers import kinds

MAX_ENTRIES: Final = 256
MAX_PARTS: Final = 4096
"""Tools and frames of tool calls."""
MAX_BYTES: Final = 32 << 20
"""Limit for the constraints and for the parts each."""

MAX_REFUSALS: Final = 1024
MAX_REFUSAL_BYTES: Final = 1 << 20
REFUSED_FOR_S: Final = 60.0
"""How long a refusal is kept. A refusal for lack of time may be due to a busy machine."""

GRACE_S: Final = 0.25
"""How long abandoned work continues: most of it ends by then, and cancelling it costs a process."""

T = TypeVar("T")


class GrammarCache:
    """Compiles what it does not have. Results and refusals are bounded separately; equal requests share the work."""

    def __init__(
        self,
        translator: ConstraintTranslator,
        named: Mapping[str, str] | None = None,
        *,
        whitespace: Whitespace = Whitespace.CONSISTENT,
        order: PropertyOrder | None = None,
        schemas: Callable[[], Mapping[str, Any]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """named: GBNF texts that a request may use by name. whitespace, order: where a constraint says nothing
        else. Without an order, tools have that of PropertyOrder.LISTED.

        schemas: reads those that a `$ref` may name, by URI; another mapping when one has changed. Called in a thread.
        """
        self._translator = translator
        self._clock = clock
        self._named = named or {}
        self._whitespace = whitespace
        self._order = order
        self._order_of_tools = order or PropertyOrder.LISTED
        self._schemas = schemas
        self._documents = _Documents({}, 0)
        self._reading = asyncio.Lock()
        self._done: _Recent[kinds.Compiled] = _Recent(MAX_ENTRIES, MAX_BYTES, _size)
        self._parts: _Recent[kinds.Compiled] = _Recent(MAX_PARTS, MAX_BYTES, _size)
        self._refused: _Recent[_Failure] = _Recent(MAX_REFUSALS, MAX_REFUSAL_BYTES, _Failure.size)
        self._running: dict[bytes, _Job] = {}

    def __len__(self) -> int:
        return len(self._done) + len(self._parts)

    async def compile(self, constraint: Constraint) -> CompiledGrammar:
        """Raises as ConstraintTranslator."""
        return cast(CompiledGrammar, await self._get(self._settled(constraint), await self._read()))

    async def gbnf(self, constraint: Constraint) -> str:
        """The constraint as GBNF, for people. Raises as `compile`."""
        return cast(str, await self._get(kinds.ShowConstraint(self._settled(constraint)), await self._read()))

    async def explain(self, constraint: JsonSchemaConstraint) -> Explanation:
        """What a schema costs, or which keyword to change. Raises GrammarTooComplex."""
        settled = cast(JsonSchemaConstraint, self._settled(constraint))
        return cast(Explanation, await self._get(kinds.ExplainSchema(settled), await self._read()))

    def _settled(self, constraint: Constraint) -> Constraint:
        """The constraint with the server's grammar of that name, or its defaults of white space and order."""
        if isinstance(constraint, GbnfConstraint):
            # The key is the text: an edited file is another grammar.
            return GbnfConstraint(self._named.get(constraint.text, constraint.text))
        if isinstance(constraint, JsonObjectConstraint | JsonSchemaConstraint):
            constraint = msgspec.structs.replace(
                constraint, whitespace=constraint.whitespace or self._whitespace
            )
        if isinstance(constraint, JsonSchemaConstraint):
            order = constraint.property_order or self._order or PropertyOrder.SCHEMA
            return msgspec.structs.replace(constraint, property_order=order)
        return constraint

    async def _read(self) -> _Documents:
        if self._schemas is None:
            return self._documents
        # A folder may be large or slow. One thread at a time: each reads only what has changed.
        async with self._reading:
            schemas = await asyncio.to_thread(self._schemas)
        if schemas is not self._documents.schemas:
            self._documents = _Documents(schemas, self._documents.edits + 1)
        return self._documents

    async def compile_calls(
        self,
        chat_format: ChatFormat,
        tools: Sequence[Tool],
        *,
        parallel: bool,
        constraint: Constraint | None,
    ) -> CallGrammars:
        """Raises as `compile`. constraint: for an answer without a call.

        Each tool is compiled by itself and kept, so a changed tool is the only one that is compiled again. A tool
        whose schema takes too long is held to less, with a warning, unless it has `strict`.
        """
        if constraint is not None:
            constraint = self._settled(constraint)
        documents = await self._read()
        return await compile_tools(
            lambda request: self._get(request, documents),
            chat_format.full_name,
            tools,
            parallel=parallel,
            constraint=constraint,
            whitespace=self._whitespace,
            order=self._order_of_tools,
        )

    async def _get(self, request: kinds.CompileRequest, documents: _Documents) -> kinds.Compiled:
        key = documents.key(kinds.COMPILING.requests.body(request))
        kept = self._done if isinstance(request, Constraint) else self._parts
        known = kept.get(key)
        if known is not None:
            return known
        refusal = self._refused.get(key)
        if refusal is not None and self._clock() < refusal.until:
            raise error_from_payload(refusal.code, refusal.payload)
        job = self._running.get(key)
        if job is None:
            job = self._running[key] = _Job(asyncio.create_task(self._run(key, request, documents, kept)))
            job.task.add_done_callback(lambda _, job=job: self._forget(key, job))
        return await self._wait(key, job)

    async def _run(
        self, key: bytes, request: kinds.CompileRequest, documents: _Documents, kept: _Recent[kinds.Compiled]
    ) -> kinds.Compiled | _Failure:
        try:
            if documents.schemas:
                request = await asyncio.to_thread(_bundled, request, documents.schemas)
            compiled = await self._translator(request)
        except JanServeError as error:
            if isinstance(error, InvalidRequest):
                _place(error, request)
            failure = _Failure(error.code, error.payload(), self._clock() + REFUSED_FOR_S)
            if isinstance(error, InvalidRequest):
                self._refused.put(key, failure)
            return failure
        kept.put(key, compiled)
        return compiled

    async def _wait(self, key: bytes, job: _Job) -> kinds.Compiled:
        job.waiting += 1
        try:
            # A request that is cancelled must not cancel the work of others that wait for it.
            result = await asyncio.shield(job.task)
        finally:
            job.waiting -= 1
            if not job.waiting and not job.task.done():
                asyncio.get_running_loop().call_later(GRACE_S, self._end_unless_wanted, key, job)
        if isinstance(result, _Failure):
            raise error_from_payload(result.code, result.payload)
        return result

    def _end_unless_wanted(self, key: bytes, job: _Job) -> None:
        if not job.waiting:
            self._forget(key, job)
            job.task.cancel()

    def _forget(self, key: bytes, job: _Job) -> None:
        if self._running.get(key) is job:
            del self._running[key]


class _Documents(NamedTuple):
    """What a `$ref` may name. edits: how often that has changed."""

    schemas: Mapping[str, Any]
    edits: int

    def key(self, request: bytes) -> bytes:
        return sha256(b"%d " % self.edits + request).digest()


def _bundled(request: kinds.CompileRequest, documents: Mapping[str, Any]) -> kinds.CompileRequest:
    """The request with those of the documents that its schema needs."""
    from jan_serve.constraint.json_schema.document import bundled  # few servers have such documents

    replace = msgspec.structs.replace
    match request:
        case kinds.CompileTool(parameters=parameters):
            return replace(request, parameters=bundled(parameters, documents))
        case JsonSchemaConstraint(schema=schema):
            return replace(request, schema=bundled(schema, documents))
        case (
            kinds.ShowConstraint(constraint=own)
            | kinds.ExplainSchema(constraint=own)
            | kinds.CompileAnswer(constraint=own)
        ) if isinstance(own, JsonSchemaConstraint):
            return replace(request, constraint=replace(own, schema=bundled(own.schema, documents)))
        case _:
            return request


def _place(error: InvalidRequest, request: kinds.CompileRequest) -> None:
    """Name the field of the request, and the schema where no part of it is named."""
    constraint = getattr(request, "constraint", request)
    match request:
        case kinds.CompileTool():
            error.param = "tools"
        case _ if isinstance(constraint, GbnfConstraint):
            error.param = "grammar"
            return
        case _:
            error.param = error.param or "response_format"
    if isinstance(error, GrammarTooComplex) and not isinstance(constraint, RegexConstraint):
        error.place("")


class _Job:
    """A compilation that runs. waiting: requests that wait for it."""

    def __init__(self, task: asyncio.Task[kinds.Compiled | _Failure]) -> None:
        self.task = task
        self.waiting = 0


class _Failure(NamedTuple):
    """An error, raised as a new object for each request. until: by the clock."""

    code: str
    payload: dict[str, Any]
    until: float

    def size(self) -> int:
        return sum(len(str(value)) for value in self.payload.values())


class _Recent(Generic[T]):
    """Bounded in entries and bytes; evicts the least recently used."""

    def __init__(self, max_entries: int, max_bytes: int, size: Callable[[T], int]) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._size = size
        self._entries: OrderedDict[bytes, T] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: bytes) -> T | None:
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: bytes, value: T) -> None:
        """Keep it, unless it alone is over the bound in bytes."""
        size = self._size(value)
        known = self._entries.pop(key, None)
        if known is not None:
            self.bytes -= self._size(known)
        if size > self._max_bytes:
            return
        self._entries[key] = value
        self.bytes += size
        while len(self._entries) > self._max_entries or self.bytes > self._max_bytes:
            _, dropped = self._entries.popitem(last=False)
            self.bytes -= self._size(dropped)


def _size(compiled: kinds.Compiled) -> int:
    match compiled:
        case CallFrame():
            return _size(compiled.whole) + sum(map(_size, compiled.triggered))
        case CompiledGrammar():
            return len(compiled.lark)
        case str():
            return len(compiled)
        case Explanation(lines=lines):
            return sum(map(len, lines))
        case ToolGrammar():
            return _size(compiled.piece)
        case GrammarPiece():
            return sum(len(name) + len(body) for name, body in compiled.definitions.items())
