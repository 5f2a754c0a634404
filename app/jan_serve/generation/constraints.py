"""From a Constraint to the CompiledGrammar that the engine takes: off the event loop, once for equal constraints.

The grammar package does the work and sets its limits; here are the cache and the thread.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from jan_serve.core.constraint import (
    CompiledGrammar,
    Constraint,
    GbnfConstraint,
    JsonObjectConstraint,
    JsonSchemaConstraint,
    RegexConstraint,
)
from jan_serve.errors import GrammarTooComplex

if TYPE_CHECKING:
    from jan_serve.grammar import Grammar

MAX_ENTRIES: Final = 256
MAX_BYTES: Final = 32 << 20

Translate = Callable[[Constraint, Mapping[str, str]], CompiledGrammar]

_ANY_OBJECT: Final = {"type": "object"}


def constraint_grammar(constraint: Constraint, named: Mapping[str, str]) -> Grammar:
    """The grammar of a constraint. Blocks for as long as the grammar package's budget allows. `named`: GBNF texts by
    name.

    Raises InvalidGrammar, InvalidSchema, UnsupportedSchema, UnsupportedPattern, GrammarTooComplex.
    """
    # Imported with the first constraint: a server that only chats never needs the translator.
    from jan_serve import grammar as translator

    match constraint:
        case JsonObjectConstraint():
            return translator.json_schema_to_grammar(_ANY_OBJECT)
        case JsonSchemaConstraint(schema=schema):
            return translator.json_schema_to_grammar(schema)
        case RegexConstraint(pattern=pattern):
            return translator.regex_to_grammar(pattern)
        case GbnfConstraint(text=text):
            return translator.parse_gbnf(named.get(text, text))


def compile_constraint(constraint: Constraint, named: Mapping[str, str]) -> CompiledGrammar:
    """`constraint_grammar`, printed for both executors."""
    from jan_serve import grammar as translator

    grammar = constraint_grammar(constraint, named)
    try:
        lark = translator.print_lark(grammar)
    except GrammarTooComplex:
        lark = None  # only GBNF can say it: the engine uses llama.cpp's sampler then
    return CompiledGrammar(gbnf=translator.print_gbnf(grammar), lark=lark)


class ConstraintCompiler:
    """Compiles constraints and remembers the results. Bounded in entries and bytes.

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
        self._done: OrderedDict[bytes, CompiledGrammar] = OrderedDict()
        self._bytes = 0
        self._running: dict[bytes, asyncio.Future[CompiledGrammar]] = {}

    @property
    def cached_bytes(self) -> int:
        """Size of the remembered grammars."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._done)

    async def compile(self, constraint: Constraint) -> CompiledGrammar:
        """The grammar, from the cache where it is known. Raises what `compile_constraint` raises."""
        key = _key(constraint)
        known = self._done.get(key)
        if known is not None:
            self._done.move_to_end(key)
            return known
        running = self._running.get(key)
        if running is None:
            running = self._start(key, constraint)
        # A request that leaves must not take the result from others that wait for it.
        return await asyncio.shield(running)

    def _start(self, key: bytes, constraint: Constraint) -> asyncio.Future[CompiledGrammar]:
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._executor, self._translate, constraint, self._named)
        self._running[key] = running

        def finished(future: asyncio.Future[CompiledGrammar]) -> None:
            del self._running[key]
            if not future.cancelled() and future.exception() is None:
                self._remember(key, future.result())

        running.add_done_callback(finished)
        return running

    def _remember(self, key: bytes, grammar: CompiledGrammar) -> None:
        size = _size(grammar)
        if size > MAX_BYTES:
            return
        self._done[key] = grammar
        self._bytes += size
        while len(self._done) > MAX_ENTRIES or self._bytes > MAX_BYTES:
            _, dropped = self._done.popitem(last=False)
            self._bytes -= _size(dropped)


def _key(constraint: Constraint) -> bytes:
    """Equal for equal constraints. The order of a schema's properties counts: it is the order of the output."""
    return sha256(msgspec.json.encode(constraint)).digest()


def _size(grammar: CompiledGrammar) -> int:
    return len(grammar.gbnf) + len(grammar.lark or "")
