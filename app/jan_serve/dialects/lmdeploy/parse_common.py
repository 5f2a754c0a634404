"""Checks and core values that LMDeploy's generation requests share. Messages are LMDeploy's. Pure.

All functions raise InvalidRequest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from jan_serve.core.constraint import Constraint, JsonObjectConstraint, JsonSchemaConstraint, RegexConstraint
from jan_serve.core.request import GenerationRequest, Prompt, SamplingParams, StopConditions
from jan_serve.dialects.lmdeploy.wire_common import GenerationFields, ResponseFormat, SamplingFields
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.generation_fields import explicit_fields, repetition_detection, stop_texts
from jan_serve.dialects.shared.wire_types import MAX_INT
from jan_serve.errors import InvalidRequest

_MAX_TEMPERATURE: Final = 2.0
_MAX_SESSION_ID: Final = (1 << 63) - 1
_WHOLE_CONTEXT: Final = -1
"""llama.cpp's value for penalties over the whole context."""

_SERVER_CHOOSES: Final = (-1, 0)
"""Session ids that ask the server to choose one."""


def request_of(
    body: GenerationFields,
    prompt: Prompt,
    stopping: StopConditions,
    *,
    logit_bias: Mapping[int, float] | None = None,
    **more: Any,
) -> GenerationRequest:
    """The request to the model, from the fields that all of LMDeploy's have. It returns tokens: the API counts them.

    more: its other fields.
    """
    return GenerationRequest(
        prompt=prompt,
        sampling=sampling_params(body, logit_bias),
        stopping=stopping,
        constraint=constraint_of(body.response_format),
        return_tokens=True,
        skip_special_tokens=body.skip_special_tokens is not False,
        given=explicit_fields(body, repetition_penalty="repeat_penalty", max_completion_tokens="max_tokens"),
        **more,
    )


def sampling_params(body: GenerationFields, logit_bias: Mapping[int, float] | None = None) -> SamplingParams:
    """Null turns a sampler off; a penalty of 0 or less and a seed of 0 count as absent."""
    seed = body.seed if isinstance(body, SamplingFields) else None
    top_p = 1.0 if body.top_p is None else body.top_p
    top_k = 0 if body.top_k is None else body.top_k
    temperature = 1.0 if body.temperature is None else body.temperature
    penalty = 1.0 if body.repetition_penalty is None else body.repetition_penalty
    if not 0 < top_p <= 1:
        raise InvalidRequest(f"The top_p {top_p} must be in (0, 1].", param="top_p")
    if top_k < 0:
        raise InvalidRequest(f"The top_k {_short(top_k)} cannot be a negative integer.", param="top_k")
    if not 0 <= temperature <= _MAX_TEMPERATURE:
        raise InvalidRequest(f"The temperature {temperature} must be in [0, 2]", param="temperature")
    if not 0 <= body.min_p <= 1:
        raise InvalidRequest(f"The min_p {body.min_p} must be in [0, 1].", param="min_p")
    if penalty > limits.MAX_PENALTY:
        raise InvalidRequest(
            f"The repetition_penalty {penalty} must be {limits.MAX_PENALTY:g} at most.",
            param="repetition_penalty",
        )
    return SamplingParams(
        temperature=temperature,
        top_k=min(top_k, MAX_INT),
        top_p=top_p,
        min_p=body.min_p,
        repeat_penalty=penalty if penalty > 0 else 1.0,
        repeat_last_n=_WHOLE_CONTEXT,
        seed=seed % limits.SEEDS if seed else None,
        logit_bias=dict(logit_bias or {}),
    )


def wants_usage(body: SamplingFields) -> bool:
    return body.stream_options is not None and body.stream_options.include_usage is True


def stop_conditions(
    body: GenerationFields,
    *,
    max_tokens: int | None,
    min_tokens: int | None = None,
    stop_token_ids: Sequence[int] = (),
) -> StopConditions:
    """max_tokens: None generates until the context is full."""
    minimum = _minimum(min_tokens, max_tokens)
    stops = stop_texts(body.stop)
    if body.ignore_eos:
        stops, stop_token_ids = (), ()
    return StopConditions(
        max_tokens=None if max_tokens is None else min(max_tokens, MAX_INT),
        min_tokens=minimum,
        stop=stops,
        stop_token_ids=tuple(stop_token_ids),
        include_stop=bool(body.include_stop_str_in_output),
        stop_after_min=minimum > 0,
        ignore_eos=bool(body.ignore_eos),
        repetition_detection=repetition_detection(body.repetition_detection),
    )


def token_limit(max_completion_tokens: int | None, max_tokens: int | None) -> int | None:
    """max_completion_tokens takes precedence unless it is null or 0."""
    name = "max_completion_tokens" if max_completion_tokens else "max_tokens"
    limit = max_completion_tokens or max_tokens
    if limit is not None and limit < 0:
        raise InvalidRequest(f"The {name} {_short(limit)} must be a positive integer.", param=name)
    return limit


def choice_count(n: int | None, prompts: int = 1) -> int:
    """Choices for each prompt, within MAX_CHOICES for all prompts."""
    n = 1 if n is None else n
    if n <= 0:
        raise InvalidRequest(f"The n {_short(n)} must be a positive int.", param="n")
    if n > limits.MAX_CHOICES:
        raise InvalidRequest(
            f"The n {_short(n)} exceeds the maximum supported choices ({limits.MAX_CHOICES}).", param="n"
        )
    if n * prompts > limits.MAX_CHOICES:
        raise InvalidRequest(
            f"prompt: {prompts} prompts with {n} choices each are {n * prompts}; the limit is"
            f" {limits.MAX_CHOICES}",
            param="prompt",
        )
    return n


def requested_session(session_id: int | None) -> int | None:
    """The id that the caller chose; None if the server chooses."""
    if session_id is None or session_id in _SERVER_CHOOSES:
        return None
    if not -1 <= session_id <= _MAX_SESSION_ID:
        raise InvalidRequest(
            f"session_id: must be from -1 to {_MAX_SESSION_ID}, got {_short(session_id)}",
            param="session_id",
        )
    return session_id


def candidates(logprobs: int | None, name: str) -> int | None:
    """Number of likely tokens to return besides the chosen one. None, also for 0: no log-probabilities."""
    count = logprobs or 0
    if count < 0:
        raise InvalidRequest(
            f"{name} must be non-negative when logprobs_mode is enabled in engine configuration.", param=name
        )
    if count > limits.MAX_LOGPROBS:
        raise InvalidRequest(
            f"{name}: must be from 0 to {limits.MAX_LOGPROBS}, got {_short(count)}", param=name
        )
    return count or None


def logit_bias(by_text: Mapping[str, float] | None) -> dict[int, float]:
    """Token ids, with biases clamped to MAX_BIAS."""
    by_id: dict[int, float] = {}
    for key, bias in (by_text or {}).items():
        digits = key.strip().removeprefix("-")
        if not digits.isascii() or not digits.isdigit() or len(digits) > 10:
            raise InvalidRequest(
                "Found token_id in logit_bias that is not an integer or string representing an integer",
                param="logit_bias",
            )
        by_id[int(key)] = max(-limits.MAX_BIAS, min(bias, limits.MAX_BIAS))
    return by_id


def check_bias(bias: Mapping[int, float], n_vocab: int) -> None:
    """Every id must be in the vocabulary."""
    for token in bias:
        if not 0 <= token < n_vocab:
            raise InvalidRequest(
                f"token_id {token} in logit_bias contains out-of-vocab token id", param="logit_bias"
            )


def constraint_of(response_format: ResponseFormat | None) -> Constraint | None:
    match response_format:
        case None | ResponseFormat(type="text"):
            return None
        case ResponseFormat(type="json_object"):
            return JsonObjectConstraint()
        case ResponseFormat(type="regex_schema", regex_schema=pattern):
            if pattern is None:
                raise InvalidRequest(
                    "response_format: `regex_schema` needs a pattern, a text", param="response_format"
                )
            return RegexConstraint(pattern)
        case ResponseFormat(json_schema=wrapper):
            if wrapper is None or wrapper.schema_ is None:
                raise InvalidRequest("response_format: `json_schema` needs a schema", param="response_format")
            return JsonSchemaConstraint(wrapper.schema_)


def _minimum(min_tokens: int | None, max_tokens: int | None) -> int:
    minimum = min_tokens or 0
    if minimum < 0:
        raise InvalidRequest(
            f"The min_new_tokens {_short(minimum)} cannot be a negative integer.", param="min_new_tokens"
        )
    if max_tokens is not None and minimum > max_tokens:
        return 0  # LMDeploy ignores a minimum that cannot be reached
    return min(minimum, MAX_INT)


def _short(value: int) -> str:
    return str(value)[:20]
