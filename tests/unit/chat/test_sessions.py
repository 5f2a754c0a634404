"""Sessions over published templates: the next prompt begins with this turn, but for what the template drops."""

from __future__ import annotations

import os

import pytest

from tests.unit.chat.chat_sessions import Fate, play
from tests.unit.chat.formats.real_templates import VARIABLE, RealTemplate, templates
from tests.unit.chat.template_table import OWN, PAGE, page


@pytest.mark.skipif(VARIABLE in os.environ, reason="the page is that of the templates beside the tests")
def test_the_page_of_templates_is_up_to_date() -> None:
    """Fails where a template shows less than before, or more: `make docs` writes it."""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("template", list(templates()), ids=lambda template: template.name)
def test_only_templates_change_what_is_read_already(template: RealTemplate) -> None:
    asked: dict[str, str] = {}
    for turn in play(template.source):
        assert turn.fate is not Fate.CHANGED or template.name in OWN, turn
        end = turn.prompt.rindex("QUESTION-") + len("QUESTION-1")
        first = asked.setdefault(turn.prompt[end - 1], turn.prompt[:end])
        if turn.fate is Fate.THOUGHT:
            # The engine keeps a checkpoint after the question, where the first prompt with it has its newest message.
            assert turn.next_prompt.startswith(first), turn
