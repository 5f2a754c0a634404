"""What reaches the chat template beside messages and tools, as core values. Pure."""

from __future__ import annotations

from typing import Any

from jan_serve.api.dialects.openai import limits
from jan_serve.api.dialects.openai.wire_common import Effort, TemplateFields
from jan_serve.api.shared.wire_types import MAX_INT


def reasoning_budget(body: TemplateFields, effort: Effort | None) -> int | None:
    """Tokens of thought; None is no limit. A budget that is given counts more than the effort."""
    if body.reasoning_budget is not None:
        return min(body.reasoning_budget, MAX_INT) if body.reasoning_budget >= 0 else None
    return limits.REASONING_BUDGETS.get(effort or "")


def template_kwargs(body: TemplateFields, effort: Effort | None) -> dict[str, Any]:
    """What the fields say, and what is said for the template itself, which counts more."""
    said: dict[str, Any] = {}
    if effort is not None:
        said["reasoning_effort"] = effort
    if body.documents is not None:
        said["documents"] = body.documents
    if body.enable_thinking is not None:
        said["enable_thinking"] = body.enable_thinking
    elif reasoning_budget(body, effort) == 0:
        said["enable_thinking"] = False
    return {**said, **(body.chat_template_kwargs or {})}
