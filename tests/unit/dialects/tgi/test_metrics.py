"""What engines count of their steps, in TGI's series: names, types, labels and values."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from jan_serve.core.engine_stats import STEP_SECONDS, EngineStats, PartTimes, StepTimes
from jan_serve.dialects.tgi.metrics import batch_series, skipped_tokens


class Series(Collector):
    """Series of these engines."""

    def __init__(self, *engines: EngineStats) -> None:
        self._engines = engines

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        yield from batch_series(self._engines)
        yield skipped_tokens(self._engines)


def page_of(*engines: EngineStats) -> str:
    registry = CollectorRegistry()
    registry.register(Series(*engines))
    return generate_latest(registry).decode()


def part(*buckets: int, seconds: float = 1.0) -> PartTimes:
    counts = [0] * (len(STEP_SECONDS) + 1)
    for bucket in buckets:
        counts[bucket] += 1
    return PartTimes(tuple(counts), seconds)


PREFILLS = StepTimes(whole=part(3, 5), forward=part(2, 2), join=part(0), failed=1)
DECODES = StepTimes(whole=part(1, 35, 1), sampling=part(0, 0, 0), leave=part(4), join=part(1))
ENGINE = EngineStats(prefill_steps=PREFILLS, decode_steps=DECODES, extra_tokens=(6, 0, 2, 0))


def test_types() -> None:
    page = page_of(ENGINE)
    types = dict(line.split()[2:] for line in page.splitlines() if line.startswith("# TYPE"))
    counters = (
        "tgi_batch_inference_count", "tgi_batch_inference_success", "tgi_batch_inference_failure",
        "tgi_batch_concat",
    )  # fmt: skip
    durations = [
        f"tgi_batch_{what}_duration" for what in ("inference", "forward", "decode", "filter", "concat")
    ]
    assert types == {
        **dict.fromkeys(counters, "counter"),
        **dict.fromkeys(durations, "histogram"),
        "tgi_request_skipped_tokens": "summary",
    }


def test_values_of_two_engines_add_up() -> None:
    lines = page_of(ENGINE, ENGINE, EngineStats()).splitlines()
    for line in (
        'tgi_batch_inference_count{method="decode"} 6.0',
        'tgi_batch_inference_count{method="prefill"} 6.0',
        'tgi_batch_inference_success{method="prefill"} 4.0',
        'tgi_batch_inference_failure{method="prefill"} 2.0',
        'tgi_batch_concat{reason="chunking"} 4.0',
        'tgi_batch_inference_duration_sum{method="decode"} 2.0',
        'tgi_batch_inference_duration_count{method="decode"} 6.0',
        f'tgi_batch_inference_duration_bucket{{le="{STEP_SECONDS[0]!r}",method="decode"}} 0.0',
        f'tgi_batch_inference_duration_bucket{{le="{STEP_SECONDS[1]!r}",method="decode"}} 4.0',
        f'tgi_batch_inference_duration_bucket{{le="{STEP_SECONDS[34]!r}",method="decode"}} 4.0',
        'tgi_batch_inference_duration_bucket{le="+Inf",method="decode"} 6.0',
        'tgi_batch_decode_duration_count{method="decode"} 6.0',
        'tgi_batch_filter_duration_count{method="decode"} 2.0',
        'tgi_batch_concat_duration_count{method="prefill"} 2.0',
        'tgi_request_skipped_tokens{quantile="0"} 0.0',
        'tgi_request_skipped_tokens{quantile="0.5"} 0.0',
        'tgi_request_skipped_tokens{quantile="0.9"} 2.0',
        'tgi_request_skipped_tokens{quantile="1"} 2.0',
        "tgi_request_skipped_tokens_sum 8.0",
        "tgi_request_skipped_tokens_count 16.0",
    ):
        assert line in lines
    assert 'tgi_batch_inference_failure{method="decode"}' not in "\n".join(lines)


def test_idle_engines_have_no_batch_series() -> None:
    assert list(batch_series([EngineStats()])) == []
    assert [sample.value for sample in skipped_tokens([]).samples] == [0.0] * 9


def test_the_page_can_be_read() -> None:
    assert len(list(text_string_to_metric_families(page_of(ENGINE)))) == 10
