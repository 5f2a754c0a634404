"""Fields that several of OpenAI's requests share as core values: choices, `lora`, reasoning, template. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jan_serve.core.request import AdapterChoice
from jan_serve.dialects.openai.wire_common import (
    Adapter,
    ChoiceFields,
    Effort,
    SamplingFields,
    TemplateFields,
)
from jan_serve.dialects.shared import limits
from jan_serve.dialects.shared.explicit_fields import explicit_fields
from jan_serve.dialects.shared.reasoning_effort import REASONING_BUDGETS
from jan_serve.dialects.shared.wire_types import MAX_INT
from jan_serve.errors import InvalidRequest


def explicit_sampling(body: SamplingFields) -> frozenset[str]:
    """Sampling and stopping fields that the caller set."""
    return explicit_fields(
        body, max_completion_tokens="max_tokens", max_output_tokens="max_tokens", stop_sequences="stop"
    )


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


def require(field: str, value: float, low: float, high: float) -> None:
    """Raises InvalidRequest for a value outside the closed range."""
    if not low <= value <= high:
        raise out_of_range(field, value, f"from {low:.10g} to {high:.10g}")


def out_of_range(field: str, value: float, words: str) -> InvalidRequest:
    shown = f", got {value}" if len(str(value)) <= 40 else ""
    return InvalidRequest(f"{field}: must be {words}{shown}", param=field)


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
        raise InvalidRequest("lora: each object needs a `name` or an `id`, and not both", param="lora")
    return AdapterChoice(references[0], item.scale)


def reasoning_budget(body: TemplateFields, effort: Effort | None) -> int | None:
    """Maximum tokens of thought; None is no limit. `reasoning_budget` takes precedence over the effort."""
    if body.reasoning_budget is not None:
        return min(body.reasoning_budget, MAX_INT) if body.reasoning_budget >= 0 else None
    return REASONING_BUDGETS.get(effort or "")


def template_kwargs(body: TemplateFields, effort: Effort | None) -> dict[str, Any]:
    """Variables from the fields; `chat_template_kwargs` takes precedence, except for a null `enable_thinking` in it."""
    kwargs: dict[str, Any] = {}
    if effort is not None:
        kwargs["reasoning_effort"] = effort
    if body.documents is not None:
        kwargs["documents"] = body.documents
    if body.enable_thinking is not None:
        kwargs["enable_thinking"] = body.enable_thinking
    elif reasoning_budget(body, effort) == 0:
        kwargs["enable_thinking"] = False
    own = dict(body.chat_template_kwargs or {})
    if own.get("enable_thinking") is None:
        own.pop("enable_thinking", None)
    return {**kwargs, **own}
