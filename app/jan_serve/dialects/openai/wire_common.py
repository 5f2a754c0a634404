"""Fields that OpenAI's generation requests share, with other servers' names of `response_format`."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.generation_fields import KeepAlive, RepetitionFields
from jan_serve.dialects.shared.sampling_defaults import LLAMA_CPP
from jan_serve.dialects.shared.thinking_fields import ThinkingFields
from jan_serve.dialects.shared.wire_types import AtMost, Between, Int, Strings, WireModel


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
    whitespace: Literal["consistent", "flexible", "compact"] | None = Field(
        None,
        description="White space of JSON, in place of the setting `json_whitespace`. Not in OpenAI's API.",
    )
    property_order: Literal["any", "listed", "schema"] | None = Field(
        None,
        description="Order of the listed properties, in place of the setting `property_order`. Not in OpenAI's API.",
    )


def _same_as(other: str) -> Any:
    """A field that the parser checks: what it means has another name here."""
    return Field(default=None, description=f"Another server's name of {other}.")


class ConstraintFields(WireModel):
    """The constraint on the text. `parse_constraint` reads it, and rejects what contradicts itself."""

    response_format: ResponseFormat | None = None
    grammar: str | ResponseFormat | None = Field(
        None,
        description="GBNF that the text must follow, or the name of a stored grammar; or a `response_format`.",
    )
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


Penalty = Annotated[float, Between(-2, 2)]
Count = Annotated[Int, Between(0)]


class StreamOptions(WireModel):
    include_usage: bool | None = None


class Adapter(WireModel):
    """A LoRA adapter of the model, by name or by index (from 0)."""

    name: str | None = None
    id: Int | str | None = None
    scale: float | None = None


Adapters = Annotated[
    list[str | Adapter] | None,
    AtMost(limits.MAX_ADAPTERS, "lora"),
    Field(
        description="The LoRA adapters to apply, by name, or as objects with `name` or `id`, and `scale`. Null applies"
        " those that the model's name selects."
    ),
]


@cache
def _fields_without_null(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(
        name for name, field in model.model_fields.items() if type(None) not in get_args(field.annotation)
    )


class ReportFields(WireModel):
    """llama-server's fields that add to the chunks of a stream."""

    stream: bool = False
    return_progress: Annotated[
        bool, Field(description="With `stream`: chunks with `prompt_progress` while the prompt is read.")
    ] = False
    timings_per_token: Annotated[
        bool, Field(description="With `stream`: each piece of the answer comes with `timings` so far.")
    ] = False

    @property
    def wants_reports(self) -> bool:
        return self.stream and (self.return_progress or self.timings_per_token)


class SamplingFields(ConstraintFields, ReportFields):
    """Sampling, stopping and the constraint. Defaults are those of Jan's API.

    A null counts as absent: OpenAI's API allows null for nearly all of these, and clients send it for unset fields.
    """

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, body: object) -> object:
        if not isinstance(body, dict):
            return body
        values = cast(dict[str, Any], body)
        absent = {name for name in _fields_without_null(cls) if values.get(name, ...) is None}
        return {name: value for name, value in values.items() if name not in absent} if absent else values

    min_tokens: Annotated[Count, Field(description="Minimum tokens before the model may end the text.")] = 0
    ignore_eos: Annotated[
        bool, Field(description="The model may not end the text: only a stop text or the token limit does.")
    ] = False
    temperature: Annotated[
        float, Field(description="Randomness of the text; 0 always picks the most likely token.")
    ] = LLAMA_CPP.temperature
    top_p: Annotated[float, Between(0, 1)] = Field(
        LLAMA_CPP.top_p, description="Nucleus sampling: the most likely tokens up to this mass. 1 is off."
    )
    min_p: Annotated[float, Between(0, 1)] = Field(
        LLAMA_CPP.min_p,
        description="Minimum probability of a token, relative to the most likely one. 0 is off.",
    )
    top_k: Annotated[Count, Field(description="Only the k most likely tokens. 0 is off.")] = LLAMA_CPP.top_k
    repeat_penalty: Annotated[
        float, Between(0), Field(description="Divides the logits of the last 64 tokens. 1 is off.")
    ] = 1.1
    presence_penalty: Penalty | None = 0.0
    frequency_penalty: Penalty | None = 0.0
    mirostat_mode: Annotated[Int, Between(0, 2), Field(description="Mirostat 1 or 2; 0 is off.")] = 0
    mirostat_tau: Annotated[float, Between(0, 10), Field(description="Mirostat's target entropy.")] = 5.0
    mirostat_eta: Annotated[float, Between(0.001, 1), Field(description="Mirostat's learning rate.")] = 0.1
    seed: Annotated[
        Int | None, Field(description="The same seed gives the same text. Null or -1 draws a seed.")
    ] = None
    logit_bias: Annotated[dict[str, float] | None, AtMost(limits.MAX_LOGIT_BIAS, "logit_bias")] = Field(
        None, description="Maps a token id (or text, see logit_bias_type) to the value added to its logit."
    )
    logit_bias_type: Literal["input_ids", "tokens"] | None = None
    stop: Annotated[str | Strings | None, AtMost(limits.MAX_STOPS, "stop")] = Field(
        None, description="Texts that end the answer, which then excludes them."
    )
    repetition_detection: RepetitionFields | None = None
    model: str | None = None
    lora: Adapters = None
    keep_alive: KeepAlive = None
    user: str | None = None


class ChoiceFields(SamplingFields):
    stream_options: StreamOptions | None = None
    n: Int | None = 1


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class TemplateFields(ThinkingFields):
    """Variables of the chat template besides messages and tools, and what concerns thoughts."""

    documents: Annotated[list[dict[str, Any]] | None, AtMost(limits.MAX_DOCUMENTS, "documents")] = Field(
        None, description="Documents for templates that support them."
    )
    chat_template_kwargs: Annotated[
        dict[str, Any] | None, AtMost(limits.MAX_TEMPLATE_KWARGS, "chat_template_kwargs")
    ] = Field(None, description="Further variables for the model's chat template.")
