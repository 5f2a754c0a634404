"""Wire types of the fields that constrain the text: `response_format` and its names in other servers' APIs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from jan_serve.dialects.shared.wire_types import WireModel


class JsonSchemaFormat(WireModel):
    """OpenAI's wrapper of a JSON Schema, or the schema itself, which then is in `model_extra`."""

    model_config = ConfigDict(extra="allow")

    schema_: Annotated[Any, Field(alias="schema")] = None
    name: str | None = None
    strict: bool | None = None


class ResponseFormat(WireModel):
    """The format of the answer. Accepts every spelling of the schema that clients use."""

    type: Literal[
        "text",
        "json_object",
        "json_schema",
        "json",
        "regex",
        "regex_schema",
        "grammar",
        "ebnf",
        "structural_tag",
    ]
    schema_: Annotated[Any, Field(alias="schema", description="A JSON Schema, with `json_object`.")] = None
    json_schema: JsonSchemaFormat | None = None
    value: Any = None
    regex_schema: str | None = None
    regex: Any = None
    pattern: Any = None
    grammar: Annotated[str | None, Field(description="GBNF, with `grammar`.")] = None
    ebnf: str | None = None
    whitespace: Annotated[
        Literal["consistent", "flexible", "compact"] | None,
        Field(
            description="White space of JSON, in place of the setting `json_whitespace`. Not in OpenAI's API."
        ),
    ] = None


def _same_as(other: str) -> Any:
    """A field that the parser checks: what it means has another name here."""
    return Field(default=None, description=f"Another server's name of {other}.")


class ConstraintFields(WireModel):
    """The constraint on the text. `parse_constraint` reads it, and rejects what contradicts itself."""

    response_format: ResponseFormat | None = None
    grammar: Annotated[
        str | ResponseFormat | None,
        Field(
            description="GBNF that the text must follow, or the name of a stored grammar; or a `response_format`."
        ),
    ] = None
    json_schema: Any = _same_as("`response_format` with a schema (llama-server, SGLang)")
    regex: Any = _same_as("`response_format` of type `regex` (SGLang)")
    ebnf: Any = _same_as("`grammar` (SGLang)")
    structured_outputs: Any = _same_as("`response_format` (vLLM: `json`, `regex`, `choice`, `grammar` …)")
    guided_json: Any = _same_as("`response_format` with a schema (vLLM)")
    guided_json_object: Any = _same_as("`response_format` of type `json_object` (vLLM)")
    guided_regex: Any = _same_as("`response_format` of type `regex` (vLLM)")
    guided_choice: Any = _same_as("a grammar of these texts (vLLM)")
    guided_grammar: Any = _same_as("`grammar` (vLLM)")
    guided_whitespace_pattern: Any = _same_as("white space (vLLM): rejected")
    nvext: Any = _same_as("an object with the `guided_…` fields (NIM)")
    regex_pattern: Any = _same_as("`response_format` of type `regex` (TabbyAPI)")
    grammar_string: Any = _same_as("`grammar` (TabbyAPI, text-generation-webui)")
    format: Any = _same_as("`response_format`: `json`, or a schema (Ollama)")
    output_format: Any = _same_as("`response_format` (Anthropic)")
    output_config: Any = _same_as("an object with `format`, a `response_format` (Anthropic)")
    text: Any = _same_as("an object with `format`, a `response_format` (OpenAI's Responses)")
    structural_tag: Any = _same_as("a grammar that begins at a mark (SGLang, vLLM): rejected")
    grammar_lazy: Any = _same_as("a grammar that begins at a mark (llama-server): rejected if true")
    allowed_token_ids: Any = _same_as("a list of the tokens that may be written (vLLM): rejected")
    bad_words: Any = _same_as("a list of texts that may not be written (vLLM): rejected")
