"""From what a caller asked of the output to the grammars that the engine takes: off the event loop, and remembered.

The grammar package does the work and sets its limits; here are the cache and the thread.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from hashlib import sha256
from typing import Any, Final, cast

import msgspec

from jan_serve.chat.chat_format import ChatFormat
from jan_serve.core.constraint import CompiledGrammar, Constraint, GbnfConstraint
from jan_serve.core.guide import CallGrammars
from jan_serve.core.messages import Tool

MAX_ENTRIES: Final = 256
MAX_BYTES: Final = 32 << 20

Translate = Callable[[Constraint, Mapping[str, str]], CompiledGrammar]
Compiled = CompiledGrammar | CallGrammars


def compile_constraint(constraint: Constraint, named: Mapping[str, str]) -> CompiledGrammar:
    """`translate.compile_constraint`, which is imported with the first use: a server that only chats needs none."""
    from jan_serve.generation.constraint import grammar_of

    return grammar_of.compile_constraint(constraint, named)


def _compile_calls(
    form: ChatFormat, tools: Sequence[Tool], parallel: bool, constraint: Constraint | None
) -> CallGrammars:
    from jan_serve.generation.constraint.call_grammar import call_grammars

    return call_grammars(form, tools, parallel=parallel, constraint=constraint)


class ConstraintCompiler:
    """Compiles constraints and tool calls, and remembers the results. Bounded in entries and bytes.

    The least recently used go first.
    """

    def __init__(
        self,
        executor: Executor,
        named: Mapping[str, str] | None = None,
        translate: Translate = compile_constraint,
    ) -> None:
        """executor: where `translate` runs. named: GBNF texts that a request may ask for by name."""
        self._executor = executor
        self._named = named or {}
        self._translate = translate
        self._done: OrderedDict[bytes, Compiled] = OrderedDict()
        self._bytes = 0
        self._running: dict[bytes, asyncio.Future[Compiled]] = {}

    @property
    def cached_bytes(self) -> int:
        """Size of the remembered grammars."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._done)

    async def compile(self, constraint: Constraint) -> CompiledGrammar:
        """The grammar, from the cache where it is known.

        Raises InvalidGrammar, InvalidSchema, UnsupportedSchema, UnsupportedPattern, GrammarTooComplex.
        """
        if isinstance(constraint, GbnfConstraint) and constraint.text in self._named:
            # By its text, so that a file that was edited is another grammar.
            constraint = GbnfConstraint(self._named[constraint.text])
        work = partial(self._translate, constraint, {})
        return cast(CompiledGrammar, await self._get(_key(constraint), work))

    async def calls(
        self, form: ChatFormat, tools: Sequence[Tool], *, parallel: bool, constraint: Constraint | None
    ) -> CallGrammars:
        """The grammars of calls of these tools, as `call_grammars` makes them. Raises as `compile`."""
        key = _key([form.name, tools, parallel, constraint])
        work = partial(_compile_calls, form, tools, parallel, constraint)
        return cast(CallGrammars, await self._get(key, work))

    async def _get(self, key: bytes, work: Callable[[], Compiled]) -> Compiled:
        known = self._done.get(key)
        if known is not None:
            self._done.move_to_end(key)
            return known
        running = self._running.get(key)
        if running is None:
            running = self._start(key, work)
        # A request that leaves must not take the result from others that wait for it.
        return await asyncio.shield(running)

    def _start(self, key: bytes, work: Callable[[], Compiled]) -> asyncio.Future[Compiled]:
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._executor, work)
        self._running[key] = running

        def finished(future: asyncio.Future[Compiled]) -> None:
            del self._running[key]
            if not future.cancelled() and future.exception() is None:
                self._remember(key, future.result())

        running.add_done_callback(finished)
        return running

    def _remember(self, key: bytes, compiled: Compiled) -> None:
        size = _size(compiled)
        if size > MAX_BYTES:
            return
        self._done[key] = compiled
        self._bytes += size
        while len(self._done) > MAX_ENTRIES or self._bytes > MAX_BYTES:
            _, dropped = self._done.popitem(last=False)
            self._bytes -= _size(dropped)


def _key(asked: Any) -> bytes:
    """Equal for equal asks. The order of a schema's properties counts: it is the order of the output."""
    return sha256(msgspec.json.encode(asked)).digest()


def _size(compiled: Compiled) -> int:
    match compiled:
        case CallGrammars():
            return _size(compiled.whole) + sum(map(_size, compiled.triggered))
        case CompiledGrammar():
            return len(compiled.gbnf) + len(compiled.lark or "")
