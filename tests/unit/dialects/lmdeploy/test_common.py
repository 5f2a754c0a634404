"""Choices with LMDeploy's count of tokens, and the id of a reply."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    Started,
    TextDelta,
    TokenInfo,
    Usage,
)
from jan_serve.dialects.lmdeploy.common import Answer, ReplyFacts, ids_of, texts_of
from jan_serve.dialects.lmdeploy.serving import Session, Sessions

A, B, EOS = TokenInfo(1, b"a"), TokenInfo(2, b"b"), TokenInfo(9, b"</s>", True)


def answer_of(*events: GenerationEvent, choices: int = 1, include_stop: bool = False) -> Answer:
    answer = Answer(choices, include_stop=include_stop)
    for event in events:
        answer.add(event)
    return answer


@pytest.mark.parametrize(
    ("include_stop", "reason", "end_token", "text", "ids"),
    [
        (True, "stop", EOS, "a</s>", [1, 9]),
        (False, "stop", EOS, "a", [1]),
        (True, "length", EOS, "a", [1]),
        (True, "stop", None, "a", [1]),
    ],
)
def test_the_token_that_ends_the_text_is_shown_and_counted_on_request(
    include_stop: bool, reason: Any, end_token: TokenInfo | None, text: str, ids: list[int]
) -> None:
    end = Finished(index=0, reason=reason, end_token=end_token)
    answer = answer_of(TextDelta(0, "a", (A,)), end, include_stop=include_stop)
    [choice] = answer.choices
    assert (choice.text, choice.ids, answer.completion_tokens) == (text, ids, len(ids))


def test_usage_is_of_all_choices_and_prompts() -> None:
    events = (
        Started(model="m", prompt_tokens=3),
        Started(model="m", prompt_tokens=4),
        ReasoningDelta(0, "a", (A,)),
        TextDelta(1, "ab", (A, B)),
    )
    assert answer_of(*events, choices=2).usage() == {
        "prompt_tokens": 7,
        "total_tokens": 10,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    completed = Completed(usage=Usage(prompt_tokens=8, completion_tokens=99, cached_tokens=5))
    usage = answer_of(*events, completed, choices=2).usage()
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (8, 3, 11)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 5}


@pytest.mark.parametrize(
    ("requested", "shows_session", "before", "after"),
    [
        (7, True, "7", "7"),
        (0, True, "0", "0"),
        (7, False, "7", "7"),
        (None, True, "-1", None),
        (None, False, "-1", "-1"),
    ],
)
@pytest.mark.anyio
async def test_the_id_of_a_reply_is_that_of_its_session(
    requested: int | None, shows_session: bool, before: str, after: str | None
) -> None:
    sessions = Sessions()
    session = Session(sessions, requested)
    head = ReplyFacts(session, 0, "m", shows_session)
    assert head.id == before
    session.id = sessions.enter(session)
    assert head.id == (after or str(session.id))


def test_texts_and_ids_of_tokens() -> None:
    tokens = (A, TokenInfo(3, "é".encode()), TokenInfo(4, b"\xff"))
    assert (texts_of(tokens), ids_of(tokens)) == ("aé\ufffd", [1, 3, 4])
    assert (texts_of(()), ids_of(())) == ("", [])
