"""The constraint on the text, from each field that names one in the APIs of OpenAI and other servers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec
from pydantic import ValidationError

from jan_serve.core import constraint as core
from jan_serve.core.request import RESPONSE_FORMAT
from jan_serve.dialects.openai.wire_common import ConstraintFields, ResponseFormat
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.thinking_fields import value_at
from jan_serve.dialects.shared.wire_types import check_count, wrong
from jan_serve.errors import InvalidJson, InvalidSchema
from jan_serve.http.errors import invalid_value
from jan_serve.http.strict_json import decode_json

_SYNTAX: Final = str.maketrans({mark: f"\\{mark}" for mark in r"^$\.*+?()[]{}|/"})
_ABSENT: Final[tuple[Any, ...]] = (None, "", False, [], {})


class RequestedConstraint(NamedTuple):
    """The constraint of a request, if it has one, and the field that names it."""

    constraint: core.Constraint | None = None
    field: str = RESPONSE_FORMAT


def constraint_of(body: ConstraintFields) -> RequestedConstraint:
    """Raises InvalidRequest for a field that cannot be honoured, and for two that contradict each other."""
    for field, reason in _REFUSED.items():
        if value_at(body, field) not in _ABSENT:
            raise wrong(field, f"not on this server: {reason}")
    found = RequestedConstraint()
    for field, read in _SPELLINGS.items():
        value = value_at(body, field)
        constraint = None if value is None else read(value, field)
        if constraint is not None:
            found = _both(found, RequestedConstraint(constraint, field))
    if value_at(body, "structured_outputs.disable_any_whitespace") is True:
        return found._replace(constraint=_compact(found.constraint))
    return found


def _both(one: RequestedConstraint, other: RequestedConstraint) -> RequestedConstraint:
    """What satisfies both. Raises InvalidRequest unless they are equal, or a schema of objects and any object."""
    if one.constraint is None or _canonical(one.constraint) == _canonical(other.constraint):
        return other if one.constraint is None else one
    for wide, narrow in ((one, other), (other, one)):
        if isinstance(wide.constraint, core.JsonObjectConstraint) and _is_of_objects(narrow.constraint):
            return narrow
    raise wrong(other.field, f"contradicts `{one.field}`: one of them may constrain the text")


def _canonical(constraint: core.Constraint | None) -> bytes:
    """Tells 1 from true, which are equal in Python."""
    return msgspec.json.encode(constraint, order="deterministic")


def _is_of_objects(constraint: core.Constraint | None) -> bool:
    return (
        isinstance(constraint, core.JsonSchemaConstraint)
        and isinstance(schema := constraint.schema, dict)
        and cast(dict[str, Any], schema).get("type") == "object"
    )


def _compact(constraint: core.Constraint | None) -> core.Constraint | None:
    if isinstance(constraint, core.JsonObjectConstraint | core.JsonSchemaConstraint):
        return msgspec.structs.replace(constraint, whitespace=core.Whitespace.COMPACT)
    return constraint


def _format(value: Any, field: str) -> core.Constraint | None:
    """An object with a `type`, in the forms of all servers."""
    if not isinstance(value, ResponseFormat):
        try:
            value = ResponseFormat.model_validate(value)
        except ValidationError as error:
            raise invalid_value(field, error.errors(), value) from None
    match value.type:
        case "text":
            return None
        case "structural_tag":
            raise wrong(field, f"not on this server: {_TAGS}")
        case "grammar" | "ebnf":
            return core.GbnfConstraint(_text(value, field, value.grammar, value.ebnf, value.value))
        case "regex" | "regex_schema":
            pattern: Any = value.regex
            if isinstance(pattern, dict):
                pattern = cast(dict[str, Any], pattern).get("regex")
            return core.RegexConstraint(
                _text(value, field, value.regex_schema, value.value, pattern, value.pattern)
            )
        case _:
            return _json(value, field)


def _text(form: ResponseFormat, field: str, *values: Any) -> str:
    """The first of the values that is there."""
    found = next((value for value in values if value is not None), None)
    if not isinstance(found, str):
        needed = "a pattern" if form.type.startswith("regex") else "a grammar"
        raise wrong(field, f"`{form.type}` needs {needed}, a text")
    return found


def _json(form: ResponseFormat, field: str) -> core.Constraint:
    schema, whitespace = _schema_in(form), core.Whitespace(form.whitespace) if form.whitespace else None
    if schema is not None:
        order = core.PropertyOrder(form.property_order) if form.property_order else None
        return msgspec.structs.replace(_schema(schema, field), whitespace=whitespace, property_order=order)
    if form.type == "json_schema":
        raise wrong(field, "`json_schema` needs a schema")
    return core.JsonObjectConstraint(whitespace)


def _schema_in(form: ResponseFormat) -> Any:
    wrapper = form.json_schema
    if wrapper is not None and wrapper.schema_ is not None:
        return wrapper.schema_
    if wrapper is not None and wrapper.name is None and wrapper.model_extra:
        return wrapper.model_extra
    if form.schema_ is not None:
        return form.schema_
    value: object = form.value
    if form.type == "json_schema" and isinstance(value, dict):
        named = cast(dict[str, Any], value)
        return named.get("schema", named)
    return value


def _schema(value: Any, field: str) -> core.JsonSchemaConstraint:
    """A JSON Schema, or its text."""
    if isinstance(value, str):
        try:
            value = decode_json(value.encode(), limits.MAX_SCHEMA_DEPTH)
        except InvalidJson as error:
            reason = error.message.replace("The request body", "the text")
            raise wrong(field, f"not a JSON Schema: {reason}") from None
    if not isinstance(value, dict | bool):
        raise InvalidSchema("", "a schema is an object or a boolean", param=field).about(field)
    return core.JsonSchemaConstraint(value)


def _any_object(value: Any, field: str) -> core.Constraint | None:
    if not isinstance(value, bool):
        raise wrong(field, "must be true or false")
    return core.JsonObjectConstraint() if value else None


def _regex(value: Any, field: str) -> core.Constraint:
    if not isinstance(value, str):
        raise wrong(field, "must be a regular expression, a text")
    return core.RegexConstraint(value)


def _gbnf(value: Any, field: str) -> core.Constraint | None:
    if isinstance(value, dict | ResponseFormat):
        return _format(value, field)
    if not isinstance(value, str):
        raise wrong(field, "must be GBNF, a text")
    return core.GbnfConstraint(value)


def _choice(value: Any, field: str) -> core.Constraint:
    texts = cast(list[Any], value) if isinstance(value, list) else []
    if not texts or not all(isinstance(text, str) for text in texts):
        raise wrong(field, "must be a list of at least one text")
    check_count(texts, limits.MAX_CONSTRAINT_CHOICES, field)
    return core.RegexConstraint("|".join(text.translate(_SYNTAX) for text in texts))


def _ollama_format(value: Any, field: str) -> core.Constraint | None:
    if isinstance(value, dict):
        return _schema(value, field)
    if value not in ("", "json"):
        raise wrong(field, "must be `json` or a JSON Schema")
    return core.JsonObjectConstraint() if value else None


_Reader = Callable[[Any, str], core.Constraint | None]

_GUIDED: Final[Mapping[str, _Reader]] = {
    "guided_json": _schema,
    "guided_json_object": _any_object,
    "guided_regex": _regex,
    "guided_choice": _choice,
    "guided_grammar": _gbnf,
}
_SPELLINGS: Final[Mapping[str, _Reader]] = {
    "response_format": _format,
    "text.format": _format,
    "output_config.format": _format,
    "output_format": _format,
    "grammar": _gbnf,
    "grammar_string": _gbnf,
    "ebnf": _gbnf,
    "json_schema": _schema,
    "regex": _regex,
    "regex_pattern": _regex,
    "format": _ollama_format,
    **_GUIDED,
    **{f"nvext.{name}": read for name, read in _GUIDED.items()},
    "structured_outputs.json": _schema,
    "structured_outputs.json_object": _any_object,
    "structured_outputs.regex": _regex,
    "structured_outputs.choice": _choice,
    "structured_outputs.grammar": _gbnf,
}
"""How each field is read, by its path."""

_TAGS: Final = "a constraint applies from the beginning of the answer; tools have their own"
_WHITE_SPACE: Final = "`whitespace` of `response_format` chooses among three layouts"
_REFUSED: Final[Mapping[str, str]] = {
    "structural_tag": _TAGS,
    "structured_outputs.structural_tag": _TAGS,
    "grammar_lazy": _TAGS,
    "guided_whitespace_pattern": _WHITE_SPACE,
    "nvext.guided_whitespace_pattern": _WHITE_SPACE,
    "structured_outputs.whitespace_pattern": _WHITE_SPACE,
    "structured_outputs.disable_additional_properties": "say `additionalProperties: false` in the schema",
    "allowed_token_ids": "`grammar` and `logit_bias` limit what is written",
    "bad_words": "`grammar` and `logit_bias` limit what is written",
}
"""Fields that constrain the text and cannot be honoured, and why."""
