"""Wire type of `response_format`, which chats and completions share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from jan_serve.api.shared.wire_types import WireModel


class JsonSchemaFormat(WireModel):
    """OpenAI's wrapper of a JSON Schema."""

    schema_: Annotated[Any, Field(alias="schema")] = None
    name: str | None = None
    strict: bool | None = None


class ResponseFormat(WireModel):
    """The format of the answer. Accepts every spelling of the schema that clients use."""

    type: Literal["text", "json_object", "json_schema", "json", "regex", "regex_schema"]
    schema_: Annotated[Any, Field(alias="schema", description="A JSON Schema, with `json_object`.")] = None
    json_schema: JsonSchemaFormat | None = None
    value: Any = None
    regex_schema: str | None = None
    whitespace: Annotated[
        Literal["consistent", "flexible", "compact"] | None,
        Field(
            description="White space of JSON, in place of the setting `json_whitespace`. Not in OpenAI's API."
        ),
    ] = None
