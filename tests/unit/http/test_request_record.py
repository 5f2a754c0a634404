"""What a record counts of the events of an answer."""

from __future__ import annotations

import pytest

from jan_serve.core.events import (
    Completed,
    Finished,
    GenerationEvent,
    ReasoningDelta,
    Started,
    TextDelta,
    Timings,
    ToolCallDelta,
    Usage,
)
from jan_serve.http import request_record
from jan_serve.http.request_record import RequestRecord

STARTED = Started(model="m", prompt_tokens=7, warnings=("partly enforced",))


@pytest.fixture
def record(monkeypatch: pytest.MonkeyPatch) -> RequestRecord:
    """Each reading of the clock is a second after the last."""
    seconds = iter(range(100, 200))
    monkeypatch.setattr(request_record.time, "perf_counter", lambda: float(next(seconds)))
    return RequestRecord("r", started=90.0)


def observed(record: RequestRecord, *events: GenerationEvent) -> RequestRecord:
    for event in events:
        record.observe(event)
    return record


def test_an_answer_that_is_cut_short_has_the_counts_so_far(record: RequestRecord) -> None:
    observed(record, STARTED, TextDelta(0, "a"), Finished(index=0, reason="stop", completion_tokens=3))
    assert (record.model, record.prompt_tokens, record.completion_tokens) == ("m", 7, 3)
    assert (record.warnings, record.finish_reasons) == (("partly enforced",), ["stop"])
    assert (record.cached_tokens, record.queue_s, record.decode_s) == (0, None, None)


def test_the_final_counts_replace_those_before(record: RequestRecord) -> None:
    observed(
        record,
        STARTED,
        Finished(index=0, reason="stop", completion_tokens=3),
        Finished(index=1, reason="length", completion_tokens=4),
        Completed(
            usage=Usage(prompt_tokens=14, completion_tokens=8, cached_tokens=5),
            timings=Timings(queue_s=0.1, prefill_s=0.2, decode_s=0.3),
        ),
    )
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (14, 8, 5)
    assert (record.queue_s, record.prefill_s, record.decode_s) == (0.1, 0.2, 0.3)
    assert record.finish_reasons == ["stop", "length"]


def test_prompts_of_one_request_add_up_until_then(record: RequestRecord) -> None:
    assert observed(record, STARTED, STARTED).prompt_tokens == 14


def test_times_of_pieces(record: RequestRecord) -> None:
    observed(record, STARTED)
    assert record.first_token_s is None
    observed(record, ReasoningDelta(0, "a"))
    assert (record.first_token_s, record.token_gaps_s) == (10.0, [])
    observed(record, ToolCallDelta(0, 0), Finished(index=0, reason="stop"), TextDelta(1, "b"))
    assert (record.first_token_s, record.token_gaps_s) == (10.0, [1.0, 1.0])
