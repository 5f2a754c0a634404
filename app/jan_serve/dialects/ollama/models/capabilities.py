"""What Ollama's clients may ask of a model, from its header and its chat template. Pure."""

from __future__ import annotations

from collections.abc import Container

from jan_serve.chat.detect import knows_thoughts
from jan_serve.core.models.listed_model import HeaderFacts
from jan_serve.generation.template_choice import BUILT_IN, TemplateOverride


def capabilities(
    facts: HeaderFacts, modalities: Container[str], *, templated: bool, thinks: bool
) -> list[str]:
    """A model with a template can call tools: the server holds its answers to their schemas."""
    if facts.pooling is not None:
        return ["embedding"]
    has = {
        "completion": True,
        "tools": templated,
        "thinking": thinks,
        "vision": "vision" in modalities,
        "audio": "audio" in modalities,
        "insert": facts.fills_gaps,
    }
    return [name for name, present in has.items() if present]


def listed_capabilities(
    facts: HeaderFacts | None, modalities: Container[str], override: TemplateOverride | None
) -> list[str] | None:
    """Without the text of the model's own template. override: the configured one. None while the header is unread."""
    if facts is None or facts.thinks is None:
        return None
    text = None if override is None else override.source or BUILT_IN.get(override.name)
    if text is not None:
        return capabilities(facts, modalities, templated=True, thinks=knows_thoughts(text))
    # An override without a text names one of the model's own templates, which differ in tools alone.
    templated = facts.has_chat_template or override is not None
    return capabilities(facts, modalities, templated=templated, thinks=facts.thinks)
