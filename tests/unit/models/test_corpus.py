"""The generators of the corpus: seeded, split without overlap, and true to the chat template."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest

from jan_serve.chat.template import render_prompt
from jan_serve.core.messages import FunctionCall, Message, Tool, ToolCall
from jan_serve.core.request import ChatPrompt, RenderRequest
from models.recipe.chat_template import CHAT_TEMPLATE
from models.recipe.corpus import facts, identity, mixture, small_talk
from models.recipe.corpus.conversation import Conversation, Infill, Turn
from models.recipe.corpus.draw import Draw, is_held_out
from models.recipe.vocabulary import SPECIAL_TOKENS, TOOL_CALL_END, TOOL_CALL_START

SKILLS = sorted(mixture.SKILLS)
SPLIT_BY_TEXT = sorted(name for name, skill in mixture.SKILLS.items() if skill.split_by_text)


def chats(skill: str, count: int, *, seed: int = 7, held_out: bool = False) -> list[Conversation]:
    draw = Draw(seed, held_out=held_out)
    found = [mixture.single(skill, draw) for _ in range(count)]
    return [example for example in found if isinstance(example, Conversation)]


@pytest.mark.parametrize("held_out", [False, True])
def test_same_seed_gives_the_same_examples(held_out: bool) -> None:
    first = list(islice(mixture.examples(3, held_out=held_out), 200))
    again = list(islice(mixture.examples(3, held_out=held_out), 200))
    other = list(islice(mixture.examples(4, held_out=held_out), 200))
    assert first == again
    assert first != other


@pytest.mark.parametrize("skill", SPLIT_BY_TEXT)
def test_questions_of_finite_sets_are_on_one_side_only(skill: str) -> None:
    def keys(*, held_out: bool) -> set[str]:
        draw = Draw(skill, held_out=held_out)
        return {mixture.single(skill, draw).key for _ in range(400)}

    assert not keys(held_out=False) & keys(held_out=True)


def test_names_and_numbers_are_on_one_side_only() -> None:
    makers: dict[str, Callable[[Draw], str]] = {
        "given": Draw.given_name,
        "city": Draw.city,
        "invented": Draw.invented,
        "number": lambda draw: str(draw.number(1, 999)),
    }
    for name, make in makers.items():
        sides = [
            {make(draw) for _ in range(500)}
            for draw in (Draw(name, held_out=False), Draw(name, held_out=True))
        ]
        assert not sides[0] & sides[1], name


def test_questions_inside_longer_chats_keep_to_their_side() -> None:
    finite = {"identity": identity.generate, "small_talk": small_talk.generate, "facts": facts.generate}
    held_out = {
        chat.key
        for skill in finite
        for chat in chats(skill, 600, seed=11, held_out=True)
        if is_held_out(chat.key)
    }
    said = {
        turn.content
        for _, example in islice(mixture.examples(5, held_out=False), 3000)
        if isinstance(example, Conversation)
        for turn in example.turns
        if turn.role == "user"
    }
    assert held_out
    assert not held_out & said


@pytest.mark.parametrize("skill", SKILLS)
def test_examples_hold_no_stray_marks_and_end_with_what_is_learned(skill: str) -> None:
    draw = Draw(skill, held_out=False)
    for _ in range(200):
        example = mixture.single(skill, draw)
        pieces = example.pieces()
        assert pieces[-1].learned
        assert "".join(piece.text for piece in pieces).startswith(example.prompt())
        assert "{" not in example.key or isinstance(example, Infill) or "JSON" in example.key
        turns: tuple[Turn, ...] = example.turns if isinstance(example, Conversation) else ()
        for turn in turns:
            if turn.role != "assistant":
                assert not any(token in turn.content for token in SPECIAL_TOKENS)


def as_message(turn: Turn) -> Message:
    """A turn as a client would send it: calls apart from the content."""
    match = re.fullmatch(re.escape(TOOL_CALL_START) + "(.*)" + re.escape(TOOL_CALL_END), turn.content)
    if turn.role == "assistant" and match:
        body = match[1]
        name = json.loads(body)["name"]
        arguments = body.split('"arguments": ', 1)[1][:-1]
        return Message(role="assistant", tool_calls=(ToolCall("call_0", FunctionCall(name, arguments)),))
    return Message(role=turn.role, content=turn.content)


def tool_of(definition: Any) -> Tool:
    function: dict[str, Any] = definition["function"]
    return Tool(
        name=function["name"],
        description=function.get("description"),
        parameters=function["parameters"],
        strict=function.get("strict"),
    )


def test_template_in_the_gguf_renders_what_training_saw() -> None:
    compared = 0
    for _, example in islice(mixture.examples(9, held_out=False), 600):
        if not isinstance(example, Conversation):
            continue
        # Sorted keys stand for clients whose JSON differs; the server itself writes name, description, parameters.
        if any(list(tool) != ["type", "function"] for tool in example.tools):
            continue
        system = () if example.system is None else (Message(role="system", content=example.system),)
        prompt = ChatPrompt(
            messages=(*system, *(as_message(turn) for turn in example.turns[:-1])),
            tools=tuple(tool_of(tool) for tool in example.tools),
            template_kwargs={"enable_thinking": True} if example.thinking else {},
        )
        rendered = render_prompt(RenderRequest(prompt=prompt, template=CHAT_TEMPLATE, now=datetime.now(UTC)))
        assert rendered == example.prompt()
        compared += 1
    assert compared > 300


def test_thought_of_earlier_answers_is_left_out() -> None:
    prompt = ChatPrompt(
        messages=(
            Message(role="user", content="one"),
            Message(role="assistant", content="<think>\nhidden\n</think>\n\nshown"),
            Message(role="user", content="two"),
        )
    )
    rendered = render_prompt(RenderRequest(prompt=prompt, template=CHAT_TEMPLATE, now=datetime.now(UTC)))
    assert "hidden" not in rendered
    assert "<|im_start|>assistant\nshown<|im_end|>\n" in rendered
