"""The constraint on the text, from `response_format` and `grammar`. Pure."""

from __future__ import annotations

from typing import Any, cast

from jan_serve.api.dialects.openai.wire_response_format import ResponseFormat
from jan_serve.core.constraint import (
    Constraint,
    GbnfConstraint,
    JsonObjectConstraint,
    JsonSchemaConstraint,
    RegexConstraint,
    Whitespace,
)
from jan_serve.errors import InvalidRequest, InvalidSchema


def constraint_of(response_format: ResponseFormat | None, grammar: str | None) -> Constraint | None:
    """response_format, in any of its spellings, takes precedence over grammar."""
    if response_format is None or response_format.type == "text":
        return GbnfConstraint(grammar) if grammar is not None else None
    if response_format.type in ("regex", "regex_schema"):
        pattern = response_format.value if response_format.type == "regex" else response_format.regex_schema
        if not isinstance(pattern, str):
            raise InvalidRequest(
                f"response_format: `{response_format.type}` needs a pattern, a text", param="response_format"
            )
        return RegexConstraint(pattern)
    schema = _schema(response_format)
    whitespace = Whitespace(response_format.whitespace) if response_format.whitespace else None
    if schema is None:
        if response_format.type == "json_schema":
            raise InvalidRequest("response_format: `json_schema` needs a schema", param="response_format")
        return JsonObjectConstraint(whitespace)
    if not isinstance(schema, dict | bool):
        raise InvalidSchema("", "a schema is an object or a boolean")
    return JsonSchemaConstraint(schema, whitespace)


def _schema(response_format: ResponseFormat) -> Any:
    if response_format.json_schema is not None and response_format.json_schema.schema_ is not None:
        return response_format.json_schema.schema_
    if response_format.schema_ is not None:
        return response_format.schema_
    value: object = response_format.value
    if response_format.type != "json_schema" or not isinstance(value, dict):
        return response_format.value
    wrapper = cast(dict[str, Any], value)
    return wrapper.get("schema", wrapper)
