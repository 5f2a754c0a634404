"""Fields that Jan's generation requests share."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, Field, model_validator

from jan_serve.api.dialects.openai import limits
from jan_serve.api.dialects.openai.wire_response_format import ResponseFormat
from jan_serve.api.shared.durations import KeepAlive
from jan_serve.api.shared.wire_types import AtMost, Between, Int, Strings, WireModel

Penalty = Annotated[float, Between(-2, 2)]
Count = Annotated[Int, Between(0)]


class StreamOptions(WireModel):
    """What a stream holds besides the answer."""

    include_usage: bool | None = None


class Adapter(WireModel):
    """A LoRA adapter of the model, by its name or by its place among them (from 0)."""

    name: str | None = None
    id: Int | str | None = None
    scale: float | None = None


Adapters = Annotated[
    list[str | Adapter] | None,
    AtMost(limits.MAX_ADAPTERS, "lora"),
    Field(
        description="LoRA adapters to apply and no others, by name, or as objects with `name` or `id`, and `scale`."
        " Null is what the model's name says."
    ),
]


@cache
def _fields_without_null(model: type[BaseModel]) -> frozenset[str]:
    return frozenset(
        name for name, field in model.model_fields.items() if type(None) not in get_args(field.annotation)
    )


class SamplingFields(WireModel):
    """How tokens are picked and where the text ends. Defaults are those of Jan's API.

    Null in place of a value is no value: OpenAI's API has null for nearly all of these, and clients send it for what
    their users left open.
    """

    @model_validator(mode="before")
    @classmethod
    def _null_is_not_given(cls, body: object) -> object:
        if not isinstance(body, dict):
            return body
        values = cast(dict[str, Any], body)
        absent = {name for name in _fields_without_null(cls) if values.get(name, ...) is None}
        return {name: value for name, value in values.items() if name not in absent} if absent else values

    min_tokens: Annotated[
        Count, Field(description="Tokens to generate before the model may end the text.")
    ] = 0
    ignore_eos: Annotated[
        bool, Field(description="The model may not end the text: it goes on until a stop text, or its limit.")
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
        Field(description="Least probability of a token, relative to the most likely one. 0 is off."),
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
    seed: Annotated[Int | None, Field(description="Same seed, same text. Null or -1 draws one.")] = None
    logit_bias: Annotated[
        dict[str, float] | None,
        AtMost(limits.MAX_LOGIT_BIAS, "logit_bias"),
        Field(description="Token id (or text, see logit_bias_type) to what is added to its logit."),
    ] = None
    logit_bias_type: Literal["input_ids", "tokens"] | None = None
    stop: Annotated[
        str | Strings | None,
        AtMost(limits.MAX_STOPS, "stop"),
        Field(description="Texts that end the answer, which then excludes them."),
    ] = None
    grammar: Annotated[
        str | None, Field(description="GBNF that the text has to follow, or the name of one.")
    ] = None
    stream: bool = False
    model: str | None = None
    lora: Adapters = None
    keep_alive: KeepAlive = None
    user: str | None = None


class ChoiceFields(SamplingFields):
    """What chats and completions have beside that."""

    response_format: ResponseFormat | None = None
    stream_options: StreamOptions | None = None
    n: Int | None = 1


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class TemplateFields(WireModel):
    """What reaches the chat template beside messages and tools, and how long a model may think."""

    reasoning_budget: Annotated[
        Annotated[Int, Between(-1)] | None,
        Field(
            description="Tokens after which a thought is closed. Null and -1 are no limit; 0 is no thought."
        ),
    ] = None
    enable_thinking: Annotated[
        bool | None, Field(description="Whether a model that can think does, where its template asks.")
    ] = None
    documents: Annotated[
        list[dict[str, Any]] | None,
        AtMost(limits.MAX_DOCUMENTS, "documents"),
        Field(description="Texts for templates that show some to the model."),
    ] = None
    chat_template_kwargs: Annotated[
        dict[str, Any] | None,
        AtMost(limits.MAX_TEMPLATE_KWARGS, "chat_template_kwargs"),
        Field(description="Further variables for the model's chat template."),
    ] = None
