"""Which chat template a model is asked with: the one that was set for it, or one of its own."""

from __future__ import annotations

from typing import Final

import msgspec

from jan_serve.chat.chatml import CHATML
from jan_serve.core.model_facts import ModelFacts
from jan_serve.errors import TemplateError

BUILT_IN: Final = {"chatml": CHATML}


class TemplateOverride(msgspec.Struct, frozen=True):
    """A template in place of a model's own. source: its text; None where `name` is one that the model or we have."""

    name: str
    source: str | None = None


def template_of(
    model: str, facts: ModelFacts, override: TemplateOverride | None, *, with_tools: bool
) -> str | None:
    """The template's text; None where there is none. Raises TemplateError for an override that names none.

    Without an override it is the GGUF's own, or its one for tools, where there are tools and it has one.
    """
    templates = facts.chat_templates
    if override is None:
        return templates.get("tool_use" if with_tools and "tool_use" in templates else "default")
    if override.source is not None:
        return override.source
    source = templates.get(override.name, BUILT_IN.get(override.name))
    if source is None:
        known = ", ".join(sorted({*templates, *BUILT_IN}))
        raise TemplateError(
            f"the chat template {override.name!r} that is set for {model} is neither a file nor one of {known}"
        )
    return source
