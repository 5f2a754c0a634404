"""GenerationRequest of a request after TGI's checks, in its order and words; schemas as TGI reads them. Pure."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Final, Literal, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.core.constraint import Constraint, JsonSchemaConstraint, RegexConstraint
from jan_serve.core.messages import ImagePart, TextPart
from jan_serve.core.models import ModelFacts
from jan_serve.core.request import (
    AdapterChoice,
    GenerationRequest,
    PartsPrompt,
    SamplingParams,
    StopConditions,
    TokenPrompt,
    Watermark,
)
from jan_serve.dialects.shared.generation_fields import explicit_fields
from jan_serve.dialects.shared.wire_types import MAX_INT, Between, Int, Strings, WireModel
from jan_serve.dialects.tgi.errors import ValidationFailed
from jan_serve.dialects.tgi.options import TgiOptions

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


class Info(TypedDict):
    """The model and the server. The second half has the names of 1.4.2."""

    model_id: str
    model_sha: str | None
    model_pipeline_tag: str | None
    max_concurrent_requests: int
    max_best_of: int
    max_stop_sequences: int
    max_input_tokens: int
    max_total_tokens: int
    validation_workers: int
    max_client_batch_size: int
    router: str
    version: str
    sha: str | None
    docker_label: str | None
    model_dtype: str
    model_device_type: str
    max_input_length: int
    waiting_served_ratio: float
    max_batch_total_tokens: int
    max_waiting_tokens: int
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


_SLICE_TOKENS: Final = 1024
"""The check of a request's length counts `max_new_tokens` up to this."""
_OF_ONE: Final = ("items", "additionalProperties", "contains")
_OF_LIST: Final = ("prefixItems", "anyOf", "oneOf")
_BY_NAME: Final = ("properties", "$defs", "definitions")
_SHARED: Final = frozenset(
    ("allOf", "not", "if", "dependentSchemas", "patternProperties", "unevaluatedProperties", "$dynamicRef")
)
"""Keywords with which a schema depends on its neighbours: closing one of them could forbid everything."""
_BESIDE_REFERENCES: Final = frozenset(("$ref", "title", "description", "default", "examples"))
_SPEAKS_FOR_ITSELF: Final = ("additionalProperties", "anyOf", "oneOf", "$ref")


def read_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema in standard JSON Schema. Allows nothing that the original forbids."""
    if _any_shared(schema):
        return {**schema, "type": schema.get("type", "object")}
    return _closed(schema)


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    out = dict(schema)
    if "properties" in out:
        out.setdefault("type", "object")
        if not any(keyword in out for keyword in _SPEAKS_FOR_ITSELF):
            out["additionalProperties"] = False
    # Members of alternatives apply together with properties that stand beside these.
    lists = [keyword for keyword in _OF_LIST if "properties" not in schema or keyword == "prefixItems"]
    for keyword in _OF_ONE:
        if keyword in out:
            out[keyword] = _inner(out[keyword])
    for keyword in lists:
        if isinstance(out.get(keyword), list):
            out[keyword] = [_inner(each) for each in out[keyword]]
    for keyword in _BY_NAME:
        if isinstance(out.get(keyword), dict):
            named = cast(dict[str, Any], out[keyword])
            out[keyword] = {name: _inner(each) for name, each in named.items()}
    return out


def _inner(value: Any) -> Any:
    return _closed(cast(dict[str, Any], value)) if isinstance(value, dict) else value


def _any_shared(value: Any) -> bool:
    if isinstance(value, dict):
        entries = cast(dict[str, Any], value)
        refined = "$ref" in entries and not entries.keys() <= _BESIDE_REFERENCES
        if refined or not _SHARED.isdisjoint(entries):
            return True
        return any(map(_any_shared, entries.values()))
    return isinstance(value, list) and any(map(_any_shared, cast(list[Any], value)))


_IMAGE: Final = re.compile(r"!\[\]\(([^)]*)\)")
"""TGI's own pattern. Text that looks like it is an image, as TGI has it."""


def sampled_parameters(body: SampledRequest, **more: Any) -> Parameters:
    """A temperature of 0 is greedy; without one, the text is sampled. more: fields that not all such requests have."""
    greedy = body.temperature == 0
    return Parameters(
        temperature=None if greedy else body.temperature,
        do_sample=not greedy,
        top_p=None if greedy else body.top_p,
        frequency_penalty=body.frequency_penalty,
        max_new_tokens=body.max_tokens,
        stop=body.stop or [],
        seed=body.seed,
        details=True,
        **more,
    )


def samples(p: Parameters) -> bool:
    return (
        p.do_sample
        or (p.temperature is not None and p.temperature != 1.0)
        or p.top_k is not None
        or p.top_p is not None
        or p.typical_p is not None
    )


def check_before_queue(p: Parameters, limits: TgiOptions, *, stream: bool) -> None:
    """Checks before the limit on concurrent requests. `best_of` 0 is 1, but for streams. Raises ValidationFailed."""
    best_of = 1 if p.best_of is None else p.best_of
    if stream and best_of != 1:
        raise ValidationFailed("`best_of` != 1 is not supported when streaming tokens")
    if stream and p.decoder_input_details:
        raise ValidationFailed("`decoder_input_details` == true is not supported when streaming tokens")
    if best_of > 1 and limits.tgi_max_best_of <= 1:
        raise ValidationFailed("`best_of` != 1 is not allowed for this endpoint")
    if best_of > limits.tgi_max_best_of:
        raise ValidationFailed(f"`best_of` must be > 0 and <= {limits.tgi_max_best_of}. Given: {best_of}")


def check(inputs: str, p: Parameters, limits: TgiOptions, max_input: int) -> None:
    """All other checks that need no token counts. Raises ValidationFailed."""
    best_of, stops, top_n = p.best_of or 1, limits.tgi_max_stop_sequences, limits.tgi_max_top_n_tokens
    for fits, words in (
        (best_of == 1 or samples(p), "you must use sampling when `best_of` is > 1"),
        (_is_above_0(p.temperature), "`temperature` must be strictly positive"),
        (_is_above_0(p.repetition_penalty), "`repetition_penalty` must be strictly positive"),
        (-2.0 <= (p.frequency_penalty or 0.0) <= 2.0, "`frequency_penalty` must be >= -2.0 and <= 2.0"),
        (p.top_p is None or 0 < p.top_p < 1, "`top_p` must be > 0.0 and < 1.0"),
        (p.typical_p is None or 0 < p.typical_p < 1, "`typical_p` must be > 0.0 and < 1.0"),
        (_is_above_0(p.top_k), "`top_k` must be strictly positive"),
        (_is_above_0(p.max_new_tokens), "`max_new_tokens` must be strictly positive"),
        (len(p.stop) <= stops, f"`stop` supports up to {stops} stop sequences. Given: {len(p.stop)}"),
        ("" not in p.stop, "`stop` sequences cannot be empty"),
        (best_of == 1 or p.seed is None, "`seed` must not be set when `best_of` > 1"),
        (
            (p.top_n_tokens or 0) <= top_n,
            f"`top_n_tokens` must be >= 0 and <= {top_n}. Given: {p.top_n_tokens}",
        ),
        (inputs, "`inputs` cannot be empty"),
        (
            p.truncate is None or 0 < p.truncate <= max_input,
            f"`truncate` must be strictly positive and less than {max_input}. Given: {p.truncate}",
        ),
    ):
        if not fits:
            raise ValidationFailed(words)


def _is_above_0(value: float | None) -> bool:
    return value is None or value > 0


def max_tokens(limits: TgiOptions, facts: ModelFacts) -> tuple[int, int]:
    """The most tokens of a prompt, which leave room for another one, and of prompt and answer together."""
    given, longest = limits.tgi_max_total_tokens, facts.longest_ctx
    max_total = longest if given is None else min(given, longest)
    return min(max_total - 1, limits.tgi_max_input_tokens or max_total), max_total


def check_length(p: Parameters, n_input: int, *, max_input: int, max_total: int, remedy: str = "") -> None:
    """n_input: tokens after truncation. remedy: what can be done. Raises ValidationFailed."""
    then = f". {remedy}".rstrip(". ")
    max_new = max(0, max_total - n_input) if p.max_new_tokens is None else p.max_new_tokens
    max_new = min(max_new, _SLICE_TOKENS)
    if n_input + max_new > max_total:
        raise ValidationFailed(
            f"`inputs` tokens + `max_new_tokens` must be <= {max_total}. Given: {n_input} `inputs` tokens and"
            f" {max_new} `max_new_tokens`{then}"
        )
    if n_input > max_input:
        raise ValidationFailed(f"`inputs` must have less than {max_input} tokens. Given: {n_input}{then}")


def max_new_tokens(p: Parameters, n_input: int, max_total: int) -> int:
    """The limit of the answer: the rest of the context if the request has a higher limit or none."""
    left = max_total - n_input
    return left if p.max_new_tokens is None else min(p.max_new_tokens, left)


def constraint_of(grammar: GrammarValue | None) -> Constraint | None:
    """Raises ValidationFailed, like TGI even for some schemas that could be compiled."""
    if grammar is None:
        return None
    if isinstance(grammar, RegexValue):
        return RegexConstraint(grammar.value)
    value: Any = grammar.value.schema_ if isinstance(grammar, JsonSchemaValue) else grammar.value
    if isinstance(grammar, JsonValue) and isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValidationFailed(f"grammar is not valid: {error}") from None
    if not isinstance(value, dict):
        raise ValidationFailed("grammar is not supported")
    schema = cast(dict[str, Any], value)
    if "properties" not in schema:
        raise ValidationFailed("grammar is not valid: Grammar must have a 'properties' field")
    return JsonSchemaConstraint(read_schema(schema))


def prompt_with_images(facts: ModelFacts, inputs: str, *, add_special: bool) -> PartsPrompt | None:
    """The prompt with the images of its Markdown. None if there are none.

    A model that reads text only reads the Markdown of an image's address. It refuses an image that is in the Markdown
    itself: as text, that is nothing but a long one.
    """
    # Behind the last `)` no image ends: the pattern would read the rest again from each `![](`.
    end = inputs.rfind(")") + 1
    pieces = _IMAGE.split(inputs[:end])
    if len(pieces) == 1:
        return None
    pieces[-1] += inputs[end:]
    parts = [ImagePart(text, "inputs") if at % 2 else TextPart(text) for at, text in enumerate(pieces)]
    if "vision" not in facts.modalities and not any(url[:5].lower() == "data:" for url in pieces[1::2]):
        return None
    return PartsPrompt(tuple(part for part in parts if isinstance(part, ImagePart) or part.text), add_special)


def generation_request(
    p: Parameters,
    model: str | None,
    prompt: TokenPrompt | PartsPrompt,
    n_input: int,
    limits: TgiOptions,
    *,
    max_total: int,
    constraint: Constraint | None,
    adapters: tuple[AdapterChoice, ...] | None,
) -> GenerationRequest:
    """n_input: the prompt's tokens, after `truncate`."""
    best_of = p.best_of or 1
    sampled = samples(p)
    return GenerationRequest(
        model=model,
        prompt=prompt,
        sampling=SamplingParams(
            temperature=(p.temperature or 1.0) if sampled else 0.0,
            top_k=p.top_k or 0,
            top_p=p.top_p if p.top_p is not None else 1.0,
            typical_p=p.typical_p if p.typical_p is not None else 1.0,
            repeat_penalty=p.repetition_penalty if p.repetition_penalty is not None else 1.0,
            frequency_penalty=p.frequency_penalty or 0.0,
            seed=p.seed,
            watermark=Watermark(limits.watermark_gamma, limits.watermark_delta) if p.watermark else None,
            pipeline="warped",
        ),
        stopping=StopConditions(
            max_tokens=max_new_tokens(p, n_input, max_total),
            stop=tuple(dict.fromkeys(p.stop)),
            include_stop=True,
            stop_at_token_end=True,
        ),
        constraint=constraint,
        n=best_of,
        best_of=best_of,
        logprobs=p.top_n_tokens or 0,
        prompt_logprobs=0 if p.decoder_input_details else None,
        return_tokens=True,
        given=_given(p),
        adapters=adapters,
    )


def _given(p: Parameters) -> frozenset[str]:
    """The fields that the caller set. A `do_sample` of false is a temperature of 0; an empty `stop` sets nothing."""
    names = explicit_fields(p, max_new_tokens="max_tokens", repetition_penalty="repeat_penalty")
    names = names if p.stop else names - {"stop"}
    return names | {"temperature"} if "do_sample" in names and not p.do_sample else names
