"""Writes calls in a family's layout: for histories that a template does not write, and for instructions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from jan_serve.chat.call_arguments import object_arguments
from jan_serve.chat.call_layout import (
    ArgumentSyntax,
    CallLayout,
    GemmaArguments,
    JsonArguments,
    NestedTagArguments,
    Parts,
    PythonArguments,
    Slot,
    TaggedArguments,
)
from jan_serve.chat.literals import is_word
from jan_serve.core.messages import ToolCall


def write_calls(layout: CallLayout, calls: Sequence[ToolCall]) -> str:
    """Write the calls of one turn, in order."""
    written = (
        _fill(layout.call, _slots(layout, call, layout.first_index + number))
        for number, call in enumerate(calls)
    )
    return layout.opening + layout.separator.join(written) + layout.closing


def _slots(layout: CallLayout, call: ToolCall, index: int) -> dict[Slot, str]:
    return {
        Slot.NAME: call.function.name,
        Slot.INDEX: str(index),
        Slot.CALL_ID: call.id,
        Slot.ARGUMENTS: _arguments(layout.arguments, call.function.arguments),
    }


def _fill(parts: Parts, slots: Mapping[Slot, str]) -> str:
    return "".join(part if isinstance(part, str) else slots[part] for part in parts)


def _arguments(syntax: ArgumentSyntax, text: str) -> str:
    values = object_arguments(text)
    match syntax:
        case JsonArguments():
            return _json(values)
        case TaggedArguments():
            return _tagged(syntax, values)
        case PythonArguments():
            return ", ".join(f"{name}={_python(value, syntax.json_words)}" for name, value in values.items())
        case GemmaArguments():
            return _gemma(values, syntax.quote)
        case NestedTagArguments():
            return _nested(values, syntax.prefix)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _json_type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case dict():
            return "object"
        case _:
            return "array"


def _raw_or_json(value: object) -> str:
    return value if isinstance(value, str) else _json(value)


def _tagged(syntax: TaggedArguments, values: Mapping[str, Any]) -> str:
    return syntax.separator.join(
        _fill(
            syntax.argument,
            {
                Slot.KEY: name,
                Slot.VALUE: _raw_or_json(value),
                Slot.IS_STRING: _json(isinstance(value, str)),
                Slot.JSON_TYPE: _json_type(value),
            },
        )
        for name, value in values.items()
    )


def _python(value: object, json_words: bool) -> str:
    match value:
        case dict():
            members = cast(dict[str, object], value).items()
            return "{" + ", ".join(f"{_json(k)}: {_python(v, json_words)}" for k, v in members) + "}"
        case list():
            return "[" + ", ".join(_python(item, json_words) for item in cast(list[object], value)) + "]"
        case None | bool() if not json_words:
            return repr(value)
        case _:
            return _json(value)


def _gemma(value: object, quote: str) -> str:
    match value:
        case dict():
            members = cast(dict[str, object], value).items()
            written = (
                f"{name if is_word(name) else quote + name + quote}:{_gemma(member, quote)}"
                for name, member in members
            )
            return "{" + ",".join(written) + "}"
        case list():
            return "[" + ",".join(_gemma(item, quote) for item in cast(list[object], value)) + "]"
        case str():
            return quote + value + quote
        case _:
            return _json(value)


def _nested(value: object, prefix: str) -> str:
    match value:
        case dict():
            members = cast(dict[str, object], value).items()
            return "".join(
                f"{prefix}<{name}>{_nested(member, prefix)}{prefix}</{name}>" for name, member in members
            )
        case list():
            items = cast(list[object], value)
            return "".join(f"{prefix}<item>{_nested(item, prefix)}{prefix}</item>" for item in items)
        case _:
            return _raw_or_json(value)
