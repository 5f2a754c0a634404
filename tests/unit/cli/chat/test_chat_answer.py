"""Statistics of an answer."""

from __future__ import annotations

from jan_serve.cli.chat.chat_answer import ChatAnswer


def test_statistics() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    timings = {"prompt_per_second": 100.04, "predicted_per_second": 0.0}
    assert ChatAnswer(usage=usage, timings=timings).statistics() == (
        "9 prompt tokens (4 cached), 3 answer tokens, processed at 100.0 tokens/s"
    )
    assert "incomplete" in ChatAnswer().statistics()
