"""Wire types that LMDeploy's endpoints share: generation fields, usage, errors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.dialects.lmdeploy.distserve.wire import MigrationFields
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.generation_fields import RepetitionFields
from jan_serve.dialects.shared.lmdeploy_forms import ErrorBody
from jan_serve.dialects.shared.wire_types import AtMost, Int, LaxModel, Strings


class StreamOptions(LaxModel):
    include_usage: bool | None = False


class JsonSchema(LaxModel):
    """A named schema. `strict` has no effect: answers always follow the schema."""

    name: str
    description: str | None = None
    schema_: Annotated[dict[str, Any] | None, Field(alias="schema")] = None
    strict: bool | None = False


class ResponseFormat(LaxModel):
    type: Literal["text", "json_object", "json_schema", "regex_schema"]
    json_schema: JsonSchema | None = None
    regex_schema: str | None = None


class GenerationFields(MigrationFields):
    """Sampling, stopping and presentation. The parser checks ranges, with LMDeploy's messages."""

    temperature: float | None = 1.0
    top_k: Int | None = 0
    top_p: float | None = 1.0
    min_p: float = 0.0
    repetition_penalty: float | None = 1.0
    stop: Annotated[
        str | Strings | None,
        AtMost(limits.MAX_STOPS, "stop"),
        Field(description="Texts that end the answer, which then excludes them."),
    ] = None
    ignore_eos: Annotated[
        bool | None, Field(description="Neither end-of-text tokens nor stop texts end the answer.")
    ] = False
    skip_special_tokens: Annotated[
        bool | None, Field(description="`false` shows special tokens in the text.")
    ] = True
    spaces_between_special_tokens: Annotated[
        bool | None,
        Field(description="No effect: tokens are joined as fast tokenizers join them."),
    ] = True
    include_stop_str_in_output: Annotated[
        bool | None, Field(description="The token or text that ends the answer is part of it.")
    ] = False
    repetition_detection: RepetitionFields | None = None
    session_id: Annotated[Int | None, Field(description="Id of the request for `/abort_request`.")] = -1
    stream: bool | None = False
    response_format: ResponseFormat | None = None
    mm_processor_kwargs: dict[str, Any] | None = None


class SamplingFields(GenerationFields):
    """Additional fields of the /v1 routes."""

    model: str
    temperature: float | None = 0.7
    top_k: Int | None = 40
    n: Int | None = 1
    seed: Int | None = None
    max_completion_tokens: Int | None = None
    return_token_ids: bool | None = False
    stream_options: StreamOptions | None = None
    presence_penalty: float | None = 0.0
    frequency_penalty: float | None = 0.0
    user: str | None = None


class PromptTokens(TypedDict):
    """cached_tokens: that were not computed again."""

    cached_tokens: int


class Usage(TypedDict):
    """prompt_tokens_details: as in OpenAI's API; proxies learn from it where a prompt is cached."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptTokens


class FieldErrorBody(TypedDict):
    """A field that breaks the schema."""

    loc: list[str | int]
    msg: str
    type: str


class ValidationErrorBody(ErrorBody):
    """A request that breaks the schema: FastAPI's list beside the flat body."""

    detail: list[FieldErrorBody]


class KeyErrorDetail(TypedDict):
    message: str
    type: str
    param: None
    code: str


class KeyErrorWrapper(TypedDict):
    error: KeyErrorDetail


class KeyErrorBody(TypedDict):
    detail: KeyErrorWrapper
