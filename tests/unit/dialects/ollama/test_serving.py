"""Jobs of Ollama's routes, and how their answers are rendered."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    Started,
    TextDelta,
    Timings,
    TokenInfo,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from jan_serve.core.messages import Message, Tool
from jan_serve.core.models import ModelFacts
from jan_serve.core.request import ChatPrompt, GenerationRequest, TextPrompt
from jan_serve.dialects.ollama import serving
from jan_serve.dialects.ollama.common import Job
from jan_serve.dialects.ollama.errors import Unsupported
from jan_serve.dialects.ollama.serving import (
    AnswerRenderer,
    OllamaCall,
    ReplyFacts,
    time_text,
    token_logprobs,
)
from tests.support.engine.fake_client import fake_facts
from tests.support.engine.fake_vocabulary import CHAT_TEMPLATE, THINKING_TEMPLATE

NOW = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
END = (
    Finished(index=0, reason="stop"),
    Completed(
        usage=Usage(prompt_tokens=3, completion_tokens=2), timings=Timings(prefill_s=0.5, decode_s=2.0)
    ),
)


def shape(text: str, thought: str, calls: Sequence[OllamaCall]) -> dict[str, Any]:
    return {"text": text, "thought": thought, "calls": [*calls]}


def head() -> ReplyFacts:
    return ReplyFacts("m:latest", shape, lambda: NOW)


def lines(*events: GenerationEvent) -> list[dict[str, Any]]:
    answer = AnswerRenderer(head())
    return list(itertools.chain.from_iterable(answer.chunks(event) for event in events))


def whole(*events: GenerationEvent) -> dict[str, Any]:
    answer = AnswerRenderer(head())
    for event in events:
        answer.add(event)
    return answer.body()


def parts(*events: GenerationEvent) -> list[tuple[str, str, list[str]]]:
    """Text, thought and names of the calls of each line before the last."""
    return [
        (line["text"], line["thought"], [call["function"]["name"] for call in line["calls"]])
        for line in lines(*events, *END)[:-1]
    ]


def call(number: int, name: str, *arguments: str) -> list[ToolCallDelta]:
    first, *rest = arguments
    more = [ToolCallDelta(0, number, arguments=text) for text in rest]
    return [ToolCallDelta(0, number, f"id{number}", name, first), *more]


def test_times_are_in_utc_with_microseconds() -> None:
    assert time_text(NOW) == "2026-01-02T03:04:05.000006Z"
    assert time_text(NOW + timedelta(microseconds=-6)) == "2026-01-02T03:04:05.000000Z"


def test_the_last_line_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter((1_000, 1_500, 4_000))
    monkeypatch.setattr(serving.time, "perf_counter_ns", lambda: next(ticks))
    made = head()
    made.loaded()
    answer = AnswerRenderer(made)
    [last] = itertools.chain.from_iterable(answer.chunks(event) for event in END)
    assert last == {
        "model": "m:latest",
        "created_at": "2026-01-02T03:04:05.000006Z",
        "text": "",
        "thought": "",
        "calls": [],
        "done": True,
        "done_reason": "stop",
        "total_duration": 3_000,
        "load_duration": 500,
        "prompt_eval_count": 3,
        "prompt_eval_duration": 500_000_000,
        "eval_count": 2,
        "eval_duration": 2_000_000_000,
    }


def test_no_duration_is_zero_because_clients_divide_by_it() -> None:
    [last] = lines(Finished(index=0, reason="stop"), Completed(usage=Usage()))
    durations = {name: value for name, value in last.items() if name.endswith("_duration")}
    assert len(durations) == 4
    assert min(durations.values()) >= 1


@pytest.mark.parametrize(
    ("reason", "shown"), [("stop", "stop"), ("length", "length"), ("tool_calls", "stop"), ("abort", "stop")]
)
def test_reasons(reason: Any, shown: str) -> None:
    end = Finished(index=0, reason=reason), END[1]
    assert whole(*end)["done_reason"] == shown
    assert lines(*end)[-1]["done_reason"] == shown


def test_each_piece_is_a_line_and_empty_ones_are_none() -> None:
    events = (
        Started(model="m", prompt_tokens=3),
        ReasoningDelta(0, "hm"),
        TextDelta(0, ""),
        TextDelta(0, "a"),
        TextDelta(0, "b"),
    )
    assert parts(*events) == [("", "hm", []), ("a", "", []), ("b", "", [])]
    assert (whole(*events, *END)["text"], whole(*events, *END)["thought"]) == ("ab", "hm")


def test_a_call_is_a_line_once_it_is_whole() -> None:
    events = (
        TextDelta(0, "I look."),
        *call(0, "find", '{"x"', ":1}"),
        *call(1, "open", ""),
        TextDelta(0, "Done."),
        *call(2, "shut", "{}"),
    )
    assert parts(*events) == [
        ("I look.", "", []),
        ("", "", ["find"]),
        ("", "", ["open"]),
        ("Done.", "", []),
        ("", "", ["shut"]),
    ]
    streamed = [each for line in lines(*events, *END) for each in line["calls"]]
    assert [(each["id"], each["function"]["index"], each["function"]["arguments"]) for each in streamed] == [
        ("id0", 0, {"x": 1}),
        ("id1", 1, {}),
        ("id2", 2, {}),
    ]
    assert whole(*events, *END)["calls"] == streamed


@pytest.mark.parametrize("arguments", ['{"x": ', "[1]", "null", "[" * 100_000])
def test_arguments_that_are_no_object_are_an_empty_one(arguments: str) -> None:
    """Calls are constrained to objects: only a limit leaves others."""
    events = (TextDelta(0, "a"), *call(0, "find", "{}"), *call(1, "open", arguments))
    assert parts(*events) == [("a", "", []), ("", "", ["find"]), ("", "", ["open"])]
    answer = whole(*events, *END)
    assert (answer["text"], [each["function"]["arguments"] for each in answer["calls"]]) == ("a", [{}, {}])


CANDIDATE = TokenLogprob(2, b"\xc3", -1.5)


def test_logprobs_are_of_tokens_that_have_one() -> None:
    assert token_logprobs([TokenInfo(1, b"a"), TokenInfo(2, b"\xc3", False, -0.5, (CANDIDATE,))]) == [
        {
            "token": "\ufffd",
            "logprob": -0.5,
            "bytes": [0xC3],
            "top_logprobs": [{"token": "\ufffd", "logprob": -1.5, "bytes": [0xC3]}],
        }
    ]


def test_a_piece_without_text_is_a_line_for_its_logprobs() -> None:
    token = TokenInfo(1, b"\xc3", False, -0.5)
    first, second, last = lines(TextDelta(0, "", (token,)), TextDelta(0, "é"), *END)
    assert (first["text"], len(first["logprobs"])) == ("", 1)
    assert "logprobs" not in second and "logprobs" not in last
    assert len(whole(TextDelta(0, "", (token,)), *END)["logprobs"]) == 1


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
