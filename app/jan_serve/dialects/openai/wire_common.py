"""Fields that OpenAI's generation requests share."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, Field, model_validator

from jan_serve.dialects.openai.wire_response_format import ConstraintFields
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.keep_alive import KeepAlive
from jan_serve.dialects.shared.wire_types import AtMost, Between, Int, Strings, WireModel

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


class SamplingFields(ConstraintFields):
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
    ] = 0.8
    top_p: Annotated[
        float,
        Between(0, 1),
        Field(description="Nucleus sampling: the most likely tokens up to this mass. 1 is off."),
    ] = 0.95
    min_p: Annotated[
        float,
        Between(0, 1),
        Field(description="Minimum probability of a token, relative to the most likely one. 0 is off."),
    ] = 0.05
    top_k: Annotated[Count, Field(description="Only the k most likely tokens. 0 is off.")] = 40
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
    logit_bias: Annotated[
        dict[str, float] | None,
        AtMost(limits.MAX_LOGIT_BIAS, "logit_bias"),
        Field(description="Maps a token id (or text, see logit_bias_type) to the value added to its logit."),
    ] = None
    logit_bias_type: Literal["input_ids", "tokens"] | None = None
    stop: Annotated[
        str | Strings | None,
        AtMost(limits.MAX_STOPS, "stop"),
        Field(description="Texts that end the answer, which then excludes them."),
    ] = None
    stream: bool = False
    model: str | None = None
    lora: Adapters = None
    keep_alive: KeepAlive = None
    user: str | None = None


class ChoiceFields(SamplingFields):
    stream_options: StreamOptions | None = None
    n: Int | None = 1


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class TemplateFields(WireModel):
    """Variables of the chat template besides messages and tools, and the reasoning budget."""

    reasoning_budget: Annotated[
        Annotated[Int, Between(-1)] | None,
        Field(description="Maximum tokens of thought. Null and -1 set no limit; 0 turns thinking off."),
    ] = None
    enable_thinking: Annotated[
        bool | None, Field(description="Turns thinking on or off, if the template supports it.")
    ] = None
    documents: Annotated[
        list[dict[str, Any]] | None,
        AtMost(limits.MAX_DOCUMENTS, "documents"),
        Field(description="Documents for templates that support them."),
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, Any] | None,
        AtMost(limits.MAX_TEMPLATE_KWARGS, "chat_template_kwargs"),
        Field(description="Further variables for the model's chat template."),
    ] = None
