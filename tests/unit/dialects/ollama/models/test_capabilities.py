"""Capabilities in lists, where the text of a model's own template is not at hand."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.models.listed_model import HeaderFacts
from jan_serve.dialects.ollama.models.capabilities import capabilities, listed_capabilities
from jan_serve.generation.template_choice import TemplateOverride

PLAIN = TemplateOverride("plain", "{{ messages }}")
THINKING = TemplateOverride("thinking", "{{ '<think>' }}{{ messages }}")


def facts(**values: Any) -> HeaderFacts:
    known: dict[str, Any] = {"thinks": False} | values
    return HeaderFacts(architecture="llama", **known)


@pytest.mark.parametrize(
    ("known", "modalities", "templated", "thinks", "expected"),
    [
        (facts(), (), False, False, ["completion"]),
        (facts(), (), True, False, ["completion", "tools"]),
        (facts(), (), True, True, ["completion", "tools", "thinking"]),
        (facts(), ("vision", "audio"), False, False, ["completion", "vision", "audio"]),
        (facts(fills_gaps=True), (), False, False, ["completion", "insert"]),
        (facts(pooling="mean", fills_gaps=True), ("vision",), True, True, ["embedding"]),
    ],
)
def test_capabilities(
    known: HeaderFacts, modalities: tuple[str, ...], *, templated: bool, thinks: bool, expected: list[str]
) -> None:
    assert capabilities(known, modalities, templated=templated, thinks=thinks) == expected


@pytest.mark.parametrize(
    ("known", "override", "expected"),
    [
        (None, None, None),
        (facts(thinks=None), PLAIN, None),
        (facts(), None, ["completion"]),
        (facts(has_chat_template=True), None, ["completion", "tools"]),
        (facts(has_chat_template=True, thinks=True), None, ["completion", "tools", "thinking"]),
        (facts(has_chat_template=True, thinks=True), PLAIN, ["completion", "tools"]),
        (facts(), THINKING, ["completion", "tools", "thinking"]),
        (facts(), TemplateOverride("chatml"), ["completion", "tools"]),
        (
            facts(has_chat_template=True, thinks=True),
            TemplateOverride("tool_use"),
            ["completion", "tools", "thinking"],
        ),
    ],
)
def test_a_configured_template_replaces_the_models(
    known: HeaderFacts | None, override: TemplateOverride | None, expected: list[str] | None
) -> None:
    assert listed_capabilities(known, (), override) == expected
