"""Chooses a model's chat template: the configured one, or one of the model's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from jan_serve.chat.chatml import CHATML
from jan_serve.errors import TemplateError

BUILT_IN: Final = {"chatml": CHATML}


class TemplateOverride(msgspec.Struct, frozen=True):
    """Replaces a model's template. source: its text; None if `name` is one of the model's or a built-in."""

    name: str
    source: str | None = None


def template_of(
    model: str, templates: Mapping[str, str], override: TemplateOverride | None, *, with_tools: bool
) -> str | None:
    """The template's text; None if there is none. Raises TemplateError if the override names no template.

    templates: of the model, by name. Without an override: its template for tools if there are tools, else its default
    one.
    """
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
