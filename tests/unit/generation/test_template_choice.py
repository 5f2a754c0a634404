"""Which chat template a model uses."""

from __future__ import annotations

import pytest

from jan_serve.chat.chatml import CHATML
from jan_serve.errors import TemplateError
from jan_serve.generation.template_choice import TemplateOverride, template_of
from tests.support.fake_client import fake_facts

BOTH = {"default": "D", "tool_use": "T", "rag": "R"}


@pytest.mark.parametrize(
    ("templates", "override", "with_tools", "source"),
    [
        (BOTH, None, False, "D"),
        (BOTH, None, True, "T"),
        ({"default": "D"}, None, True, "D"),
        ({}, None, True, None),
        (BOTH, TemplateOverride("rag"), True, "R"),
        (BOTH, TemplateOverride("file.jinja", "F"), True, "F"),
        (BOTH, TemplateOverride("rag", ""), False, ""),
        (BOTH, TemplateOverride("chatml"), False, CHATML),
        ({"chatml": "own"}, TemplateOverride("chatml"), False, "own"),
    ],
)
def test_the_template(
    templates: dict[str, str], override: TemplateOverride | None, with_tools: bool, source: str | None
) -> None:
    assert template_of("m", fake_facts(chat_templates=templates), override, with_tools=with_tools) == source


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(TemplateError, match=r"'rga' .* for m .* chatml, default, rag, tool_use"):
        template_of("m", fake_facts(chat_templates=BOTH), TemplateOverride("rga"), with_tools=False)
