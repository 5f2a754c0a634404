"""Wire types of TGI's native routes. Ranges other than of unsigned fields are checked later, in TGI's order."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from jan_serve.dialects.shared.wire_types import MAX_INT, Between, Int, Strings, WireModel

Unsigned = Annotated[Int, Between(0, (1 << 32) - 1)]
Seed = Annotated[Int, Between(0, (1 << 64) - 1)]


class JsonValue(WireModel):
    """A JSON schema, or the text of one."""

    type: Literal["json", "json_object"]
    value: Any


class RegexValue(WireModel):
    """A regular expression that the whole text has to match."""

    type: Literal["regex"]
    value: str


class NamedSchema(WireModel):
    """A JSON schema under a name, which means nothing."""

    name: str | None = None
    schema_: Any = Field(alias="schema")


class JsonSchemaValue(WireModel):
    type: Literal["json_schema"]
    value: NamedSchema


GrammarValue = Annotated[JsonValue | RegexValue | JsonSchemaValue, Field(discriminator="type")]
"""The constraint on the text."""


class Parameters(WireModel):
    """How to generate. Absent switches mean what they mean in TGI."""

    best_of: Unsigned | None = None
    temperature: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    top_k: Annotated[Int, Between(-MAX_INT - 1, MAX_INT)] | None = None
    top_p: float | None = None
    typical_p: float | None = None
    do_sample: bool = False
    max_new_tokens: Unsigned | None = None
    return_full_text: bool | None = None
    stop: Strings = Field(default_factory=list[str])
    truncate: Unsigned | None = None
    watermark: bool = False
    details: bool = False
    decoder_input_details: bool = False
    seed: Seed | None = None
    top_n_tokens: Unsigned | None = None
    grammar: GrammarValue | None = None
    adapter_id: str | None = None


class GenerateRequest(WireModel):
    """Text to continue. Without `parameters` the text is sampled; with them, even empty, it is greedy by default."""

    inputs: str
    parameters: Parameters = Field(default_factory=lambda: Parameters(do_sample=True))


class CompatRequest(GenerateRequest):
    """The same, whole or as a stream."""

    stream: bool = False


class SampledRequest(WireModel):
    """What the requests of the routes under /v1 share."""

    model: str | None = None
    max_tokens: Unsigned | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    stop: Strings | None = None
    seed: Seed | None = None
    stream: bool = False


class PrefillToken(TypedDict):
    """A token of the prompt; the first has no log-probability."""

    id: int
    text: str
    logprob: float | None


class Token(TypedDict):
    id: int
    text: str
    logprob: float
    special: bool


class SequenceDetails(TypedDict):
    finish_reason: str
    generated_tokens: int
    seed: int | None
    prefill: list[PrefillToken]
    tokens: list[Token]
    top_tokens: NotRequired[list[list[Token]]]


class BestOfSequence(SequenceDetails):
    """A generation that was not the best one."""

    generated_text: str


class Details(SequenceDetails):
    best_of_sequences: NotRequired[list[BestOfSequence]]


class Usage(TypedDict):
    """Counts of the routes under /v1."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class GenerateResponse(TypedDict):
    generated_text: str
    details: NotRequired[Details]


class SimpleToken(TypedDict):
    """A token of a text and the bytes that it covers there, the end excluded."""

    id: int
    text: str
    start: int
    stop: int


class Info(BaseModel):
    """The model and the server. The second half has the names of 1.4.2."""

    model_config = {"protected_namespaces": ()}

    model_id: str
    model_sha: str | None = None
    model_pipeline_tag: str | None = "text-generation"
    max_concurrent_requests: int
    max_best_of: int
    max_stop_sequences: int
    max_input_tokens: int
    max_total_tokens: int
    validation_workers: int = 2
    max_client_batch_size: int
    router: str = "text-generation-router"
    version: str
    sha: str | None = None
    docker_label: str | None
    model_dtype: str
    model_device_type: str
    max_input_length: int
    waiting_served_ratio: float = 0.3
    max_batch_total_tokens: int
    max_waiting_tokens: int = 20
    max_batch_size: int | None


class ModelEntry(TypedDict):
    """A model in OpenAI's list."""

    id: str
    object: str
    created: int
    owned_by: str


class ModelList(TypedDict):
    object: str
    data: list[ModelEntry]
