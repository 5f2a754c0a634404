"""What the text has to be, from `response_format` and `grammar`. Pure."""

from __future__ import annotations

from typing import Any, cast

from jan_serve.api.dialects.openai.wire_response_format import ResponseFormat
from jan_serve.core.constraint import (
    Constraint,
    GbnfConstraint,
    JsonObjectConstraint,
    JsonSchemaConstraint,
    RegexConstraint,
)
from jan_serve.errors import InvalidRequest, InvalidSchema


def constraint_of(wanted: ResponseFormat | None, grammar: str | None) -> Constraint | None:
    """response_format, in any of its spellings, has precedence over grammar."""
    if wanted is None or wanted.type == "text":
        return GbnfConstraint(grammar) if grammar is not None else None
    if wanted.type in ("regex", "regex_schema"):
        pattern = wanted.value if wanted.type == "regex" else wanted.regex_schema
        if not isinstance(pattern, str):
            raise InvalidRequest(
                f"response_format: `{wanted.type}` needs a pattern, a text", param="response_format"
            )
        return RegexConstraint(pattern)
    schema = _schema(wanted)
    if schema is None:
        if wanted.type == "json_schema":
            raise InvalidRequest("response_format: `json_schema` needs a schema", param="response_format")
        return JsonObjectConstraint()
    if not isinstance(schema, dict | bool):
        raise InvalidSchema("", "a schema is an object or a boolean")
    return JsonSchemaConstraint(schema)


def _schema(wanted: ResponseFormat) -> Any:
    if wanted.json_schema is not None and wanted.json_schema.schema_ is not None:
        return wanted.json_schema.schema_
    if wanted.schema_ is not None:
        return wanted.schema_
    value: object = wanted.value
    if wanted.type != "json_schema" or not isinstance(value, dict):
        return wanted.value
    wrapper = cast(dict[str, Any], value)
    return wrapper.get("schema", wrapper)
