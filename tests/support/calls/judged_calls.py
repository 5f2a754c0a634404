"""Calls that a constraint accepts, read as the server reads them and judged by jsonschema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import jsonschema
from jsonschema.validators import validator_for

from jan_serve.chat.call_layout import JsonArguments, NestedTagArguments
from jan_serve.chat.chat_format import ChatFormat, StreamParser
from jan_serve.chat.detect import FORMATS
from jan_serve.chat.tools_as_text import write_calls
from jan_serve.core.events import ToolCallDelta
from jan_serve.core.messages import FunctionCall, Tool, ToolCall
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.grammar_factory import GrammarFactory
from tests.support.calls.call_grammars import call_grammars
from tests.support.gguf.byte_vocabulary import EOS, FIRST_BYTE, byte_vocabulary, pieces_of

NOTATIONS = [form for form in FORMATS if not isinstance(form.calls.arguments, JsonArguments)]
"""Formats whose arguments are no JSON."""
_FACTORY = GrammarFactory(byte_vocabulary(pieces_of()))


class Judged(NamedTuple):
    """What became of one text. read: the arguments that the parser reads, where it is accepted."""

    accepted: bool
    read: Any = None
    problem: str | None = None


class CallJudge:
    """One tool in one format."""

    def __init__(self, form: ChatFormat, schema: dict[str, Any]) -> None:
        """Raises JanServeError where the schema cannot be enforced in this format."""
        self._form = form
        self._tool = Tool(name="f", parameters=schema, strict=True)
        kind: Any = validator_for(schema, default=jsonschema.Draft202012Validator)
        self._validator = kind({"type": "object", **schema}, format_checker=kind.FORMAT_CHECKER)
        self._start: GrammarExecutor = _FACTORY.create(
            call_grammars(form, [self._tool], parallel=False).whole
        )

    def written(self, arguments: dict[str, Any]) -> Iterator[str]:
        """The calls with these arguments, as the format writes them and as its grammar may."""
        yield self._text(arguments)
        if isinstance(self._form.calls.arguments, NestedTagArguments):
            # Arrays and objects are read as JSON too.
            yield self._text(
                {
                    name: json.dumps(value) if isinstance(value, list | dict) else value
                    for name, value in arguments.items()
                }
            )

    def _text(self, arguments: dict[str, Any]) -> str:
        call = ToolCall("abcdefghi", FunctionCall("f", json.dumps(arguments)))
        return write_calls(self._form.calls, [call])

    def judged(self, text: str) -> Judged:
        """problem: an invalid call that is accepted."""
        return self.read(text) if _accepts(self._start, text) else Judged(False)

    def read(self, text: str) -> Judged:
        """As `judged`, for a text that is accepted."""
        parser = StreamParser(self._form, lambda name, own: name, tools=[self._tool])
        deltas = [*parser.feed(text), *parser.finish()]
        parts = [delta.arguments for delta in deltas if isinstance(delta, ToolCallDelta)]
        try:
            read = json.loads("".join(parts))
        except ValueError as error:
            return Judged(True, None, f"no JSON ({error})")
        fault = next(self._validator.iter_errors(read), None)
        return Judged(True, read, None if fault is None else fault.message[:200])


def _accepts(start: GrammarExecutor, text: str) -> bool:
    executor = start.copy()
    for byte in text.encode():
        token = FIRST_BYTE + byte
        if not executor.allows(token):
            return False
        executor.accept(token)
    return executor.allows(EOS)
