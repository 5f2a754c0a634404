"""What Ollama's requests share: fields, and their core values, with Ollama's defaults. Pure; raises InvalidRequest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, NotRequired, cast

import msgspec
from pydantic import Field
from typing_extensions import TypedDict

from jan_serve.core.constraint import Constraint, JsonObjectConstraint, JsonSchemaConstraint
from jan_serve.core.messages import ContentPart, ImagePart, TextPart
from jan_serve.core.request import ChatPrompt, GenerationRequest, Prompt, SamplingParams, StopConditions
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.generation_fields import REASONING_BUDGETS, KeepAlive, stop_texts, ttl_s
from jan_serve.dialects.shared.wire_types import (
    MAX_INT,
    AtMost,
    Between,
    Int,
    Strings,
    WireModel,
    check_count,
)
from jan_serve.errors import InvalidRequest
from jan_serve.generation.media_reader import too_many_images
from jan_serve.http.json_body import MemberNames
from jan_serve.image_files import MAX_IMAGES

Kind = Literal["integer", "float32", "boolean", "array"]

OPTION_KINDS: Final[dict[str, Kind]] = {
    **dict.fromkeys(
        (
            "temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty",
            "mirostat_tau", "mirostat_eta", "tfs_z",
        ),
        "float32",
    ),
    **dict.fromkeys(
        (
            "num_predict", "num_ctx", "num_keep", "seed", "top_k", "repeat_last_n", "num_batch", "num_gpu", "main_gpu",
            "num_thread", "draft_num_predict", "mirostat",
        ),
        "integer",
    ),
    **dict.fromkeys(
        ("use_mmap", "use_mlock", "penalize_newline", "numa", "low_vram", "f16_kv", "vocab_only", "logits_all",
         "embedding_only"),
        "boolean",
    ),
    "stop": "array",
}  # fmt: skip
"""All options of Ollama. Those that `parse_options` does not read change the load of a model, or nothing."""

OptionValues = Annotated[
    dict[str, Any] | None,
    MemberNames(frozenset(OPTION_KINDS) - {"mirostat"}),
    AtMost(limits.MAX_OPTIONS, "options"),
    Field(
        description="Sampling and stopping: temperature, top_k, num_predict, stop … Unknown names are ignored."
    ),
]
Images = Annotated[Strings | None, Field(description=f"Images, base64-encoded; {MAX_IMAGES} at most.")]


STREAMED: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"application/x-ndjson": {}}}}


class ModelFields(WireModel):
    """Names a model. name: the older field."""

    model: str | None = None
    name: str | None = None


class AnswerFields(ModelFields):
    """What chats and texts share."""

    format: Annotated[
        str | dict[str, Any] | None, Field(description="`json`, or a JSON Schema that the answer follows.")
    ] = None
    options: OptionValues = None
    stream: bool | None = True
    keep_alive: KeepAlive = None
    think: Annotated[
        bool | str | None,
        Field(
            description="Whether a reasoning model thinks; `low`, `medium`, `high` or `max` limit its thought."
        ),
    ] = None
    truncate: Annotated[bool | None, Field(description="Ignored: prompts are never shortened.")] = None
    shift: Annotated[bool | None, Field(description="Ignored: answers end where the context ends.")] = None
    logprobs: bool | None = None
    top_logprobs: Annotated[Int, Between(0, 20)] | None = None


class OllamaCandidate(TypedDict):
    """bytes: of the token, which may be part of a character."""

    token: str
    logprob: float
    bytes: list[int]


class OllamaLogprob(OllamaCandidate):
    top_logprobs: NotRequired[list[OllamaCandidate]]


class ReplyLine(TypedDict):
    """A whole answer, or a line of a stream: the last one has done_reason and what follows it.

    Durations are nanoseconds: load and prompt and answer are parts of the total.
    """

    model: str
    created_at: str
    done: bool
    done_reason: NotRequired[str]
    logprobs: NotRequired[list[OllamaLogprob]]
    total_duration: NotRequired[int]
    load_duration: NotRequired[int]
    prompt_eval_count: NotRequired[int]
    prompt_eval_duration: NotRequired[int]
    eval_count: NotRequired[int]
    eval_duration: NotRequired[int]


_SAMPLING: Final = {
    "temperature": (0.0, limits.MAX_TEMPERATURE),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "repeat_penalty": (0.0, limits.MAX_PENALTY),
    "presence_penalty": (-limits.MAX_PENALTY, limits.MAX_PENALTY),
    "frequency_penalty": (-limits.MAX_PENALTY, limits.MAX_PENALTY),
}
"""Options that are fields of SamplingParams, with their ranges."""

_DEFAULTS: Final[dict[str, Any]] = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}
"""Ollama's, where they are not those of SamplingParams."""

OFF_TYPICAL: Final = 1.0


class Options(NamedTuple):
    """given: names of fields that the request sets. num_ctx: the context that it expects, None if it says nothing."""

    sampling: SamplingParams
    stopping: StopConditions
    given: frozenset[str]
    num_ctx: int | None


def parse_options(options: Mapping[str, Any] | None) -> Options:
    values = {
        name: _typed(name, value)
        for name, value in (options or {}).items()
        if name in OPTION_KINDS and value is not None
    }
    fields: dict[str, Any] = {name: values[name] for name in _SAMPLING if name in values}
    for name, value in fields.items():
        low, high = _SAMPLING[name]
        if not low <= value <= high:
            raise _wrong(name, f"must be from {low:g} to {high:g}")
    if fields.get("repeat_penalty") == 0:
        raise _wrong("repeat_penalty", "must be above 0; 1 is off")
    if fields.get("typical_p") == 0:
        fields["typical_p"] = OFF_TYPICAL
    for name, least in (("top_k", 0), ("repeat_last_n", -1)):
        if name in values:
            fields[name] = min(max(values[name], least), MAX_INT)
    if "seed" in values:
        fields["seed"] = None if values["seed"] == -1 else values["seed"] % limits.SEEDS
    stopping: dict[str, Any] = {}
    if "num_predict" in values:
        limit = values["num_predict"]
        stopping["max_tokens"] = min(limit, MAX_INT) if limit > 0 else None
    if "stop" in values:
        check_count(values["stop"], limits.MAX_STOPS, "stop")
        stopping["stop"] = stop_texts(values["stop"])
    return Options(
        SamplingParams(**(_DEFAULTS | fields)),
        StopConditions(**stopping),
        frozenset((*fields, *stopping)),
        values.get("num_ctx"),
    )


def _typed(name: str, value: Any) -> Any:
    kind = OPTION_KINDS[name]
    if kind == "boolean" and isinstance(value, bool):
        return value
    if kind == "array":
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list) and all(isinstance(item, str) for item in cast(Sequence[Any], items)):
            return cast(list[str], items)
    if not isinstance(value, bool) and isinstance(value, int | float):
        if kind == "integer" and (isinstance(value, int) or value.is_integer()):
            return int(value)
        if kind == "float32":
            return float(min(max(value, -MAX_INT), MAX_INT))
    raise InvalidRequest(f'option "{name}" must be of type {kind}', param=name)


def _wrong(name: str, words: str) -> InvalidRequest:
    return InvalidRequest(f'option "{name}" {words}', param=name)


_LEVELS: Final = ("low", "medium", "high", "max")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed request; `serving` checks it against the model once that is loaded.

    task: `chat` or `generate`. think: None is the model's habit. num_ctx: the expected context. warnings: as in
    core.events.Started.
    """

    request: GenerationRequest
    task: str
    think: bool | str | None
    num_ctx: int | None
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The model's name as the request has it."""
        return self.request.model or ""


def model_name(body: ModelFields) -> str:
    name = body.model or body.name
    if not name:
        raise InvalidRequest("model is required", param="model")
    return name


def unloads(body: AnswerFields) -> bool:
    """Whether a request without a prompt unloads the model rather than loading it."""
    return ttl_s(body.keep_alive) == 0


def job_of(body: AnswerFields, prompt: Prompt, task: str, warnings: tuple[str, ...] = ()) -> Job:
    options = parse_options(body.options)
    return Job(
        request=GenerationRequest(
            model=model_name(body),
            prompt=prompt,
            sampling=options.sampling,
            stopping=options.stopping,
            constraint=constraint_of(body.format),
            constraint_field="format",
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            given=options.given,
            ttl_s=ttl_s(body.keep_alive),
        ),
        task=task,
        think=think_of(body.think),
        num_ctx=options.num_ctx,
        warnings=warnings,
    )


def think_of(value: bool | str | None) -> bool | str | None:
    if isinstance(value, str) and value not in _LEVELS:
        raise InvalidRequest(
            f'invalid think value: {value[:40]!r} (must be "high", "medium", "low", "max", true, or false)',
            param="think",
        )
    return value


def constraint_of(value: str | dict[str, Any] | None) -> Constraint | None:
    if not value and not isinstance(value, dict):
        return None
    if isinstance(value, dict):
        return JsonSchemaConstraint(value)
    if value != "json":
        raise InvalidRequest(
            f'invalid format: {value[:40]!r}; expected "json" or a valid JSON Schema object', param="format"
        )
    return JsonObjectConstraint()


def content_of(text: str, images: Sequence[str] | None, field: str) -> str | tuple[ContentPart, ...]:
    """Images, base64 or data URLs, precede the text. field: of the images."""
    if not images:
        return text
    if len(images) > MAX_IMAGES:
        raise too_many_images(f"{field}[{MAX_IMAGES}]", len(images))
    parts = [ImagePart(image, f"{field}[{index}]") for index, image in enumerate(images)]
    return (*parts, *([TextPart(text)] if text else ()))


def thinking(prompt: ChatPrompt, think: bool | str) -> dict[str, Any]:
    """The fields of ChatPrompt that turn thoughts on or off, or limit them."""
    kwargs = {**prompt.template_kwargs, "enable_thinking": think is not False}
    if not isinstance(think, str):
        return {"template_kwargs": kwargs, "reasoning_budget": None if think else 0}
    return {
        "template_kwargs": {**kwargs, "reasoning_effort": think},
        "reasoning_budget": REASONING_BUDGETS.get(think),
    }
