"""Jobs of TGI's routes: how many run, and the headers of their answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jan_serve.core.events import Timings, TokenInfo, TokenLogprob
from jan_serve.core.models import SpecialToken
from jan_serve.core.request import AdapterChoice
from jan_serve.dialects.tgi import serving
from jan_serve.dialects.tgi import serving as tgi_serving
from jan_serve.dialects.tgi.generate.parse import Parameters
from jan_serve.dialects.tgi.generate.render import Ending
from jan_serve.dialects.tgi.serving import Job, NativeRequest, Serving, answer_headers, stream_headers
from jan_serve.errors import JanServeError
from jan_serve.http.sse import StreamSettings
from tests.support.engine.fake_client import FakeModels, fake_facts

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


def limited(n: int) -> tuple[Serving, list[JanServeError]]:
    """A Serving of at most `n` requests, and the failures that it counts."""
    failures: list[JanServeError] = []
    parts: Any = SimpleNamespace(
        models=FakeModels(),
        preparer=None,
        running=None,
        streams=StreamSettings(15.0, 60.0),
        metrics=SimpleNamespace(page=bytes),
    )
    limits: Any = SimpleNamespace(tgi_max_concurrent_requests=n)
    metrics: Any = SimpleNamespace(failed=failures.append)
    made = Serving(parts, limits, metrics)
    return made, failures


def test_jobs_are_counted_until_they_end_however_they_end() -> None:
    made, failures = limited(3)
    with made.running(2):
        assert not made.is_full
        with pytest.raises(JanServeError, match="Model is overloaded"), made.running(2):
            raise AssertionError("it runs")
        with pytest.raises(ZeroDivisionError), made.running(1):
            assert made.is_full
            raise ZeroDivisionError
        assert not made.is_full
    with made.running(3):
        assert made.is_full
    assert len(failures) == 1


ADAPTERS: Any = (SimpleNamespace(name="SQL"), SimpleNamespace(name="c"))


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        (None, None),
        ("sql", (AdapterChoice("sql"),)),
        ("C", (AdapterChoice("C"),)),
        ("other", None),
        ("", None),
    ],
)
def test_an_unknown_adapter_changes_nothing(name: str | None, chosen: Any) -> None:
    facts = fake_facts(adapters=ADAPTERS)
    assert serving._adapters(name, facts) == chosen  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("layers", "kind"), [(0, "cpu+optimized"), (1, "gpu+optimized")])
def test_the_compute_type_is_where_the_layers_are(layers: int, kind: str) -> None:
    assert serving._compute_type(fake_facts(n_gpu_layers=layers)) == kind  # pyright: ignore[reportPrivateUsage]


EOS, EOT = SpecialToken(7, "</s>"), SpecialToken(8, "<eot>")


@pytest.mark.parametrize(
    ("special", "token"),
    [({"eos": EOS, "eot": EOT}, (7, b"</s>")), ({"eot": EOT}, (8, b"<eot>")), ({}, None)],
)
@pytest.mark.parametrize("with_candidates", [False, True])
def test_the_token_that_ends_an_answer(
    special: dict[str, SpecialToken], token: tuple[int, bytes] | None, with_candidates: bool
) -> None:
    found: TokenInfo | None = serving._eos(  # pyright: ignore[reportPrivateUsage]
        fake_facts(special_tokens=special), with_candidates=with_candidates
    )
    if token is None:
        assert found is None
        return
    top = (TokenLogprob(*token, 0.0, True),) if with_candidates else ()
    assert found == TokenInfo(*token, True, 0.0, top)
