"""Sampling fields, `logit_bias` and stop conditions of OpenAI's generation requests as core values. Pure.

Raises InvalidRequest, with the field and its range, for a value that the API document allows and this server rejects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from jan_serve.core.sampling import SamplingParams, StopConditions
from jan_serve.dialects.openai.parse_common import out_of_range, require
from jan_serve.dialects.openai.wire_common import SamplingFields
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.stops import stop_texts
from jan_serve.dialects.shared.wire_types import MAX_INT
from jan_serve.errors import InvalidRequest

RANDOM_SEED: Final = -1


def sampling_params(body: SamplingFields) -> SamplingParams:
    """All sampling fields but `logit_bias` by text (`bias_by_text`)."""
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
        logit_bias=_bias_by_id(body),
    )


def bias_by_text(body: SamplingFields) -> dict[str, float]:
    """`logit_bias` with texts as keys (`logit_bias_type` is `tokens`)."""
    if body.logit_bias_type != "tokens" or not body.logit_bias:
        return {}
    for text, bias in body.logit_bias.items():
        if not text:
            raise InvalidRequest("logit_bias: an empty text has no token", param="logit_bias")
        _check_bias(text, bias)
    return dict(body.logit_bias)


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
    )


def _bias_by_id(body: SamplingFields) -> dict[int, float]:
    if body.logit_bias_type == "tokens" or not body.logit_bias:
        return {}
    by_id: dict[int, float] = {}
    for key, bias in body.logit_bias.items():
        if not key.isascii() or not key.isdigit() or len(key) > 10:
            raise InvalidRequest(
                f"logit_bias: {key[:40]!r} is not a token id; for texts set logit_bias_type to `tokens`",
                param="logit_bias",
            )
        _check_bias(key, bias)
        by_id[int(key)] = bias
    return by_id


def _check_bias(key: str, bias: float) -> None:
    if not -limits.MAX_BIAS <= bias <= limits.MAX_BIAS:
        raise InvalidRequest(
            f"logit_bias: the bias of {key[:40]!r} must be from {-limits.MAX_BIAS:g} to {limits.MAX_BIAS:g}",
            param="logit_bias",
        )
