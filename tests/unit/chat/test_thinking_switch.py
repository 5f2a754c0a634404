"""What turns thinking on and off means the same in every spelling, whatever variable the template reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from jan_serve.chat.detect import detect_format
from jan_serve.chat.template import rendered_chat
from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt, RenderRequest
from tests.unit.chat.formats.real_templates import RealTemplate, templates


def opens_thought(template: RealTemplate, kwargs: dict[str, Any], budget: int | None = None) -> bool:
    request = RenderRequest(
        prompt=ChatPrompt(
            messages=(Message(role="user", content="Hi."),), template_kwargs=kwargs, reasoning_budget=budget
        ),
        template=template.source,
        bos_token="<s>",
        eos_token="</s>",
        now=datetime(2026, 1, 2, tzinfo=UTC),
    )
    return detect_format(template.source).prompt_opens_thought(rendered_chat(request).text)


@pytest.mark.parametrize("template", list(templates()), ids=lambda template: template.name)
def test_no_effort_is_no_thought_and_a_high_one_is_a_thought(template: RealTemplate) -> None:
    off = {"enable_thinking": False}
    without = opens_thought(template, off, 0)
    assert opens_thought(template, {"reasoning_effort": "none", **off}, 0) is without
    on = {"enable_thinking": True}
    assert opens_thought(template, {"reasoning_effort": "high", **on}) is opens_thought(template, on)
