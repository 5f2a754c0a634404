"""The words for each cause, and which one comes first."""

from __future__ import annotations

from array import array
from string import Formatter
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.api.activity.causes import causes
from jan_serve.api.activity.recent import KEPT, Activities, Activity
from jan_serve.core.trace import Difference, PromptParts, RequestTrace
from jan_serve.http.request_record import RequestRecord
from jan_serve.resources import explanations

WORDS = explanations()["causes"]


def activity(
    began: float = 0.0,
    total: float = 2.0,
    model: str = "m",
    *,
    trace: RequestTrace | None = None,
    **facts: Any,
) -> Activity:
    """An ended request; by default all of its time is reading 100 tokens."""
    values: dict[str, Any] = {"queue_s": 0.0, "prefill_s": total, "decode_s": 0.0, "finished_s": total}
    record = RequestRecord(
        request_id="r",
        started=began,
        model=model,
        trace=trace or RequestTrace(owner=""),
        **cast(Any, {"prompt_tokens": 100, **values, **facts}),
    )
    return Activity(record, "curl", 0.0, None, "/v1/chat/completions", 200, total)


def nearest(tokens: int) -> PromptParts:
    return PromptParts((), array("q"), array("q"), tokens=tokens)


def trace(difference: Difference | None = None, tokens: int = 0, **phases: float) -> RequestTrace:
    began = dict.fromkeys(phases, 0.0)
    return RequestTrace(phases=phases, began=began, nearest=nearest(tokens), difference=difference, owner="")


BEFORE = activity(-10.0, 1.0)
OTHER = activity(-5.0, 1.0, "other")
CASES: list[tuple[str, Activity, list[Activity]]] = [
    ("cold_load", activity(trace=trace(load=1.9), prefill_s=0.1), []),
    ("swapped", activity(trace=trace(load=1.9), prefill_s=0.1), [OTHER, BEFORE]),
    ("reload", activity(trace=trace(load=1.9), prefill_s=0.1), [BEFORE, OTHER]),
    ("template", activity(trace=trace(template=1.9), prefill_s=0.1), []),
    ("compile", activity(trace=trace(compile=1.9), prefill_s=0.1), []),
    ("media", activity(trace=trace(media=1.9), prefill_s=0.1), []),
    ("growth", activity(trace=trace(growth=1.9), prefill_s=0.1), []),
    ("restart", activity(trace=trace(restart=1.9), prefill_s=0.0, decode_s=2.0), []),
    ("queue", activity(queue_s=1.9, prefill_s=0.1), [activity(0.5)]),
    ("server", activity(prefill_s=0.1), []),
    ("new_prompt", activity(), []),
    ("new_text", activity(trace=trace(tokens=90), cached_tokens=90), []),
    ("evicted", activity(trace=trace(tokens=90), cached_tokens=10), []),
    ("writing", activity(prefill_s=0.1, decode_s=1.9, completion_tokens=19), []),
    ("long_neighbour", activity(prefill_s=0.1, decode_s=1.9), [activity(0.2, 1.5, prompt_tokens=4000)]),
    *(
        (code, activity(trace=trace(difference)), [])
        for code, difference in [
            ("date", Difference("system", 2, sign="date")),
            ("billing", Difference("system", 1, sign="billing")),
            ("tokens_left", Difference("history_edited", 4, sign="tokens_left", role="system")),
            ("system_changed", Difference("text", 4)),
            ("tools_order", Difference("tools_order", 1)),
            ("tool_added", Difference("tool_added", 3, count=2)),
            ("tool_removed", Difference("tool_removed", 3, count=2)),
            ("tool_changed", Difference("tool_changed", 3, count=1)),
            ("history_cut", Difference("history_cut", 3, count=4)),
            ("history_edited", Difference("history_edited", 3, role="assistant")),
            ("picture", Difference("picture", 3, role="user")),
        ]
    ),
]


@pytest.mark.parametrize(("code", "subject", "others"), CASES, ids=[case[0] for case in CASES])
def test_the_longest_comes_first(code: str, subject: Activity, others: list[Activity]) -> None:
    found = causes(subject, [subject, *others])
    assert found[0].code == code
    assert "{" not in "".join(cause.text + cause.advice for cause in found)


def test_each_cause_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(WORDS)


def test_another_key_is_no_more_than_a_neighbour() -> None:
    theirs = RequestTrace(owner="theirs")
    long = activity(0.2, 1.5, prompt_tokens=4321, trace=theirs)
    found = causes(activity(prefill_s=0.1, decode_s=1.9), [long])
    assert [cause.text for cause in found if cause.code == "long_neighbour"] == [
        "another request read a prompt of over 512 tokens meanwhile"
    ]
    other = activity(-5.0, 1.0, "secret-model", trace=theirs)
    found = causes(activity(trace=trace(load=1.9), prefill_s=0.1), [other, BEFORE])
    assert found[0].code == "swapped"
    assert "secret" not in found[0].text


@given(arrivals=st.lists(st.floats(0, 1.9), min_size=1, max_size=6, unique=True), data=st.data())
def test_all_that_wait_for_one_load_have_its_cause(arrivals: list[float], data: st.DataObject) -> None:
    """Whoever came first and whoever ended first."""
    waiters = [
        activity(
            arrival,
            3.0 - arrival,
            trace=RequestTrace(phases={"load": 2.0 - arrival}, began={"load": arrival}, owner=""),
            prefill_s=1.0,
        )
        for arrival in arrivals
    ]
    for code, earlier in (("cold_load", []), ("reload", [BEFORE]), ("swapped", [OTHER, BEFORE])):
        for waiter in waiters:
            order = data.draw(st.permutations(waiters))
            assert code in [cause.code for cause in causes(waiter, [*order, *earlier])]


def test_only_requests_that_were_there_while_it_waited_are_counted() -> None:
    subject = activity(queue_s=1.0, prefill_s=1.0)
    others = [activity(-1.0, 1.5), activity(0.5), activity(1.5, 0.2), activity(0.5, model="other")]
    waited = next(cause for cause in causes(subject, others) if cause.code == "queue")
    assert waited.text == "it waited for a slot, while 2 other request(s) used the model"


def test_only_requests_to_models_are_kept_and_few_of_them() -> None:
    activities = Activities()
    for number in range(KEPT + 10):
        record = RequestRecord(request_id=str(number))
        activities.begin({"headers": [(b"user-agent", b"agent/1 (x)")]}, record)
        assert [each.record.request_id for each in activities.all()][:1] != [str(number)]
        record.trace.owner = "" if number != 0 else None
        record.first_token_s, record.token_gaps_s = 1.0, [0.1] * (number - 1)
        activities.end("/r", 200, record)
    kept = list(activities.all())
    assert [each.record.request_id for each in kept] == [str(number) for number in range(KEPT + 9, 9, -1)]
    assert {(each.program, each.route, each.state()) for each in kept} == {("agent/1", "/r", "done")}
    assert [each.record.completion_tokens for each in kept] == [*range(KEPT + 9, 9, -1)]
    assert not any(each.record.token_gaps_s for each in kept)


@pytest.mark.parametrize(
    ("began", "queue_s", "decode_s"), [(0.0, 0.0, 2.0), (0.0, 1.8, 0.1), (0.6, 0.4, 1.6), (0.0, 2.0, 0.0)]
)
def test_the_wait_for_another_worker_is_told_once(began: float, queue_s: float, decode_s: float) -> None:
    waited = trace(restart=1.3)
    waited.began["restart"] = began
    reading_s = 2.0 - queue_s - decode_s
    asked = activity(trace=waited, queue_s=queue_s, prefill_s=reading_s, decode_s=decode_s)
    found = causes(asked, [asked])
    assert found[0].code == "restart"
    assert sum(cause.seconds for cause in found) == pytest.approx(2.0)


def test_who_waits_for_nobody_waits_for_the_server() -> None:
    asked = activity(queue_s=1.9, prefill_s=0.1)
    assert [cause.code for cause in causes(asked, [asked, activity(-9.0, 1.0)])] == ["server", "new_prompt"]


def test_words_have_only_values_that_are_given() -> None:
    known = {"model", "other", "count", "tokens", "read", "place", "number", "rate"}
    for text, advice in WORDS.values():
        assert {name for _, name, _, _ in Formatter().parse(text + advice) if name} <= known
