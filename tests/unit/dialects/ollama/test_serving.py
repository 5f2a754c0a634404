"""A request is fitted to the model that is there: what it cannot do is refused in Ollama's words."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jan_serve.core.messages import Message, Tool
from jan_serve.core.models import ModelFacts
from jan_serve.core.request import ChatPrompt, GenerationRequest, TextPrompt
from jan_serve.dialects.ollama import serving
from jan_serve.dialects.ollama.common import Job
from jan_serve.dialects.ollama.errors import Unsupported
from tests.support.fake_client import fake_facts
from tests.support.fake_vocabulary import CHAT_TEMPLATE, THINKING_TEMPLATE

CHAT = ChatPrompt(messages=(Message(role="user", content="Hi"),), template_kwargs={"given": 1})
TOOLS = msgspec.structs.replace(CHAT, tools=(Tool(name="f"),))
TEXT = TextPrompt("Hi")


def fitted(
    prompt: Any, template: str | None, think: bool | str | None = None, facts: ModelFacts | None = None
) -> GenerationRequest:
    job = Job(
        request=GenerationRequest(model="m", prompt=prompt),
        task="chat" if isinstance(prompt, ChatPrompt) else "generate",
        think=think,
        num_ctx=None,
    )
    fit = serving._fitted  # pyright: ignore[reportPrivateUsage]
    return fit(job, facts or fake_facts(), template)


@pytest.mark.parametrize(
    ("prompt", "template", "think", "what"),
    [
        (TOOLS, None, None, "tools"),
        (CHAT, CHAT_TEMPLATE, True, "thinking"),
        (CHAT, CHAT_TEMPLATE, "low", "thinking"),
        (CHAT, None, True, "thinking"),
    ],
)
def test_what_the_template_cannot_do(prompt: Any, template: str | None, think: Any, what: str) -> None:
    with pytest.raises(Unsupported, match=rf'"?m"? does not support {what}'):
        fitted(prompt, template, think)


@pytest.mark.parametrize(("prompt", "task"), [(CHAT, "chat"), (TEXT, "generate")])
def test_an_embedding_model_answers_nothing(prompt: Any, task: str) -> None:
    with pytest.raises(Unsupported, match=task):
        fitted(prompt, CHAT_TEMPLATE, facts=fake_facts(is_embedding_model=True))


@pytest.mark.parametrize(
    ("prompt", "template", "think"),
    [
        (TEXT, None, True),
        (TEXT, THINKING_TEMPLATE, True),
        (CHAT, CHAT_TEMPLATE, None),
        (CHAT, CHAT_TEMPLATE, False),
        (TOOLS, CHAT_TEMPLATE, None),
    ],
)
def test_other_requests_stay_as_they_are(prompt: Any, template: str | None, think: Any) -> None:
    assert fitted(prompt, template, think).prompt == prompt


@pytest.mark.parametrize(
    ("think", "kwargs", "budget"),
    [
        (None, {"enable_thinking": True}, None),
        (True, {"enable_thinking": True}, None),
        (False, {"enable_thinking": False}, 0),
        ("low", {"enable_thinking": True, "reasoning_effort": "low"}, 1024),
        ("high", {"enable_thinking": True, "reasoning_effort": "high"}, None),
    ],
)
def test_thoughts_are_on_unless_the_request_turns_them_off(
    think: Any, kwargs: dict[str, Any], budget: int | None
) -> None:
    prompt: Any = fitted(CHAT, THINKING_TEMPLATE, think).prompt
    assert prompt.template_kwargs == {"given": 1, **kwargs}
    assert prompt.reasoning_budget == budget
    assert CHAT.template_kwargs == {"given": 1}


@pytest.mark.parametrize(("wanted", "warns"), [(None, False), (512, False), (513, True)])
def test_only_more_context_than_there_is_warns(wanted: int | None, warns: bool) -> None:
    warnings = serving._context_warning(wanted, 512)  # pyright: ignore[reportPrivateUsage]
    assert len(warnings) == warns
    if warns:
        assert warnings[0].startswith("num_ctx: 513 is above the 512 tokens")
