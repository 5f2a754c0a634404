"""Fields that several of OpenAI's requests share, as core values. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from jan_serve.core.messages import DOCUMENT_NOTE, DocumentPart
from jan_serve.core.request import AdapterChoice, GenerationRequest, Prompt, SamplingParams, StopConditions
from jan_serve.dialects.openai.parse_constraint import constraint_of
from jan_serve.dialects.openai.wire_common import (
    Adapter,
    ChoiceFields,
    Effort,
    SamplingFields,
    TemplateFields,
)
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.generation_fields import (
    REASONING_BUDGETS,
    explicit_fields,
    out_of_range,
    repetition_detection,
    require,
    stop_texts,
    ttl_s,
)
from jan_serve.dialects.shared.thinking_fields import thinking_budget, thinking_switch
from jan_serve.dialects.shared.wire_types import MAX_INT, wrong
from jan_serve.errors import InvalidRequest, UnsupportedContent

RANDOM_SEED: Final = -1
_OTHER_NAMES: Final = {
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "stop_sequences": "stop",
}
"""Of fields that set another one's option."""


def request_of(
    body: SamplingFields, prompt: Prompt, stopping: StopConditions, **more: Any
) -> GenerationRequest:
    """The request to the model, from the fields that all of OpenAI's requests have. more: its other fields.

    Raises InvalidRequest.
    """
    requested = constraint_of(body)
    by_id, by_text = logit_biases(body)
    return GenerationRequest(
        model=body.model or None,
        prompt=prompt,
        sampling=sampling_params(body, by_id),
        logit_bias_text=by_text,
        stopping=stopping,
        constraint=requested.constraint,
        constraint_field=requested.field,
        given=explicit_fields(body, **_OTHER_NAMES),
        adapters=adapter_choices(body.lora),
        ttl_s=ttl_s(body.keep_alive),
        reports_progress=body.wants_reports,
        **more,
    )


def document_part(data: str | None, name: str | None, field: str, *, of_result: bool) -> DocumentPart:
    """A file of a message. Raises UnsupportedContent for one whose content is elsewhere.

    of_result: a tool gave it, and rejecting a damaged one would end the conversation.
    """
    if data is None:
        raise UnsupportedContent(
            f"{field}: a file needs its content in base64; this server reads none from elsewhere", param=field
        )
    return DocumentPart(data, field, name, DOCUMENT_NOTE if of_result else None)


def wants_usage(body: ChoiceFields) -> bool:
    return body.stream_options is not None and body.stream_options.include_usage is True


def choice_counts(n: int | None, best_of: int | None, prompts: int) -> tuple[int, int]:
    """n and best_of, both at least 1. prompts times best_of is at most MAX_CHOICES. Raises InvalidRequest."""
    n = 1 if n is None else n
    require("n", n, 1, limits.MAX_CHOICES)
    if best_of is None or best_of == 1:
        best_of = n  # 1 is the document's default and must not be below n
    require("best_of", best_of, n, limits.MAX_CHOICES)
    if prompts * best_of > limits.MAX_CHOICES:
        raise InvalidRequest(
            f"prompt: {prompts} prompts with {best_of} choices each are {prompts * best_of}; the limit is"
            f" {limits.MAX_CHOICES}",
            param="prompt" if prompts > 1 else "n",
        )
    return n, best_of


def adapter_choices(lora: Sequence[str | Adapter] | None) -> tuple[AdapterChoice, ...] | None:
    """The field `lora`: names, or llama-server's objects of {id, scale}, whose ids count the adapters of the model.

    None if absent. Raises InvalidRequest for an object that names no adapter, or two.
    """
    if lora is None:
        return None
    return tuple(AdapterChoice(item) if isinstance(item, str) else _choice(item) for item in lora)


def _choice(item: Adapter) -> AdapterChoice:
    references = [value for value in (item.name, item.id) if value is not None]
    if len(references) != 1:
        raise wrong("lora", "each object needs a `name` or an `id`, and not both")
    return AdapterChoice(references[0], item.scale)


def reasoning_budget(body: TemplateFields, effort: Effort | None) -> int | None:
    """Maximum tokens of thought; None is no limit. A budget takes precedence over the effort."""
    budget = thinking_budget(body)
    if budget is not None:
        return budget if budget >= 0 else None
    return REASONING_BUDGETS.get(effort or "")


def template_kwargs(body: TemplateFields, effort: Effort | None) -> dict[str, Any]:
    """Variables from the fields; `chat_template_kwargs` takes precedence, except for a null `enable_thinking` in it."""
    kwargs: dict[str, Any] = {}
    if effort is not None:
        kwargs["reasoning_effort"] = effort
    if body.documents is not None:
        kwargs["documents"] = body.documents
    switch = thinking_switch(body)
    if switch is not None:
        kwargs["enable_thinking"] = switch
    elif reasoning_budget(body, effort) == 0:
        kwargs["enable_thinking"] = False
    own = dict(body.chat_template_kwargs or {})
    if own.get("enable_thinking") is None:
        own.pop("enable_thinking", None)
    return {**kwargs, **own}


def sampling_params(body: SamplingFields, logit_bias: dict[int, float]) -> SamplingParams:
    require("temperature", body.temperature, 0, limits.MAX_TEMPERATURE)
    require("top_k", body.top_k, 0, MAX_INT)
    if body.repeat_penalty == 0:
        raise out_of_range("repeat_penalty", 0, f"above 0, up to {limits.MAX_PENALTY:g}")
    require("repeat_penalty", body.repeat_penalty, 0, limits.MAX_PENALTY)
    return SamplingParams(
        temperature=body.temperature,
        top_k=body.top_k,
        top_p=body.top_p,
        min_p=body.min_p,
        repeat_penalty=body.repeat_penalty,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        mirostat_mode=body.mirostat_mode,
        mirostat_tau=body.mirostat_tau,
        mirostat_eta=body.mirostat_eta,
        seed=None if body.seed in (None, RANDOM_SEED) else body.seed % limits.SEEDS,
        logit_bias=logit_bias,
    )


def logit_biases(body: SamplingFields) -> tuple[dict[int, float], dict[str, float]]:
    """`logit_bias` by token ids, and by texts (if `logit_bias_type` is `tokens`)."""
    biases = body.logit_bias or {}
    is_by_text = body.logit_bias_type == "tokens"
    for key, bias in biases.items():
        if is_by_text and not key:
            raise wrong("logit_bias", "an empty text has no token")
        if not is_by_text and not (key.isascii() and key.isdigit() and len(key) <= 10):
            text = f"{key[:40]!r} is not a token id; for texts set logit_bias_type to `tokens`"
            raise wrong("logit_bias", text)
        if not -limits.MAX_BIAS <= bias <= limits.MAX_BIAS:
            ends = f"from {-limits.MAX_BIAS:g} to {limits.MAX_BIAS:g}"
            raise wrong("logit_bias", f"the bias of {key[:40]!r} must be {ends}")
    return ({}, biases) if is_by_text else ({int(key): bias for key, bias in biases.items()}, {})


def stop_conditions(
    body: SamplingFields, max_tokens: int | None, more_stops: Sequence[str] = ()
) -> StopConditions:
    """max_tokens: None generates until the context is full."""
    require("min_tokens", body.min_tokens, 0, MAX_INT)
    return StopConditions(
        max_tokens=None if max_tokens is None else min(max_tokens, MAX_INT),
        min_tokens=body.min_tokens,
        ignore_eos=body.ignore_eos,
        stop=stop_texts(body.stop, more_stops),
        repetition_detection=repetition_detection(body.repetition_detection),
    )


def check_metadata(metadata: dict[str, str]) -> None:
    for key, value in metadata.items():
        if len(key) > limits.MAX_METADATA_KEY or len(value) > limits.MAX_METADATA_VALUE:
            raise wrong(
                "metadata",
                f"keys have {limits.MAX_METADATA_KEY} characters at most, and values"
                f" {limits.MAX_METADATA_VALUE}",
            )
