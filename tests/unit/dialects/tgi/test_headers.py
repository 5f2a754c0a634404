"""Times and counts of answers as TGI's headers have them."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.core.events import Timings
from jan_serve.dialects.tgi import serving as tgi_serving
from jan_serve.dialects.tgi.generate.render import Ending
from jan_serve.dialects.tgi.generate.wire import Parameters
from jan_serve.dialects.tgi.serving import Job, NativeRequest, answer_headers, stream_headers

NOW = 110.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tgi_serving.time, "perf_counter", lambda: NOW)


def job(inputs: str, n_input: int, validated: float = 100.5) -> Job:
    request: Any = None
    return Job(
        native=NativeRequest(inputs, Parameters()),
        request=request,
        model="m",
        n_input=n_input,
        compute_type="cpu",
        ending=Ending(20, None),
        started=100.0,
        validated=validated,
    )


def test_the_inference_of_a_single_answer_lasts_until_now() -> None:
    # 0.5 s validation, 1.5 s queue; 8 s until now, of which the engine counted 3 s.
    timings = Timings(queue_s=1.5, prefill_s=1.0, decode_s=2.0)
    assert answer_headers([job("häh", 4)], [timings], [16]) == {
        "x-compute-type": "cpu",
        "x-compute-characters": "3",
        "x-compute-time": "10.000000",
        "x-total-time": "10000",
        "x-validation-time": "500",
        "x-queue-time": "1500",
        "x-inference-time": "8000",
        "x-time-per-token": "500",
        "x-prompt-tokens": "4",
        "x-generated-tokens": "16",
    }


def test_the_engine_s_time_counts_if_it_is_longer() -> None:
    timings = Timings(queue_s=9.0, prefill_s=1.0, decode_s=2.0)
    assert answer_headers([job("a", 1)], [timings], [0])["x-inference-time"] == "3000"


def test_several_answers_are_summed() -> None:
    timings = [Timings(queue_s=0.25, prefill_s=1, decode_s=1), Timings(prefill_s=1, decode_s=3.0009)]
    summed = answer_headers([job("ab", 2), job("c", 3, validated=101.0)], timings, [4, 0])
    assert summed["x-compute-characters"] == "3"
    assert (summed["x-validation-time"], summed["x-queue-time"]) == ("1500", "250")
    assert (summed["x-inference-time"], summed["x-total-time"]) == ("6000", "7750")
    assert summed["x-compute-time"] == "7.750900"
    assert summed["x-time-per-token"] == "4500", "0.5 s for each of four tokens, and 4 s of an answer without"
    assert (summed["x-prompt-tokens"], summed["x-generated-tokens"]) == ("5", "4")


def test_a_stream_has_no_times_yet() -> None:
    plain = {"content-type": "text/event-stream", "cache-control": "no-cache", "x-accel-buffering": "no"}
    assert stream_headers([]) == plain
    assert stream_headers([job("ab", 2)]) == {**plain, "x-compute-type": "cpu", "x-compute-characters": "2"}
