"""A generation in TGI's terms, before and after its checks:

every route turns its request into these. TGI's response headers tell its times, and counts of tokens and characters.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from jan_serve.core.constraint import Constraint
from jan_serve.core.events import Timings
from jan_serve.core.request import GenerationRequest
from jan_serve.dialects.tgi.generate.render import Ending
from jan_serve.dialects.tgi.generate.wire import Parameters


class NativeRequest(msgspec.Struct, frozen=True):
    """Not yet checked. add_special: BOS as the model wants it; a rendered chat brings its own.

    constraint: in place of `parameters.grammar`.
    """

    inputs: str
    parameters: Parameters
    stream: bool = False
    add_special: bool = True
    constraint: Constraint | None = None


class Job(msgspec.Struct, frozen=True):
    """A generation that passed the checks. Times are of `time.perf_counter`."""

    native: NativeRequest
    request: GenerationRequest
    model: str
    n_input: int
    compute_type: str
    ending: Ending
    started: float
    validated: float

    @property
    def max_new_tokens(self) -> int:
        return self.ending.max_new_tokens


def answer_headers(
    jobs: Sequence[Job], timings: Sequence[Timings], generated: Sequence[int]
) -> dict[str, str]:
    """Headers of a whole answer: sums over its jobs, of times too. generated: tokens of each.

    The total is the sum of the validation, the wait in the queue and the inference. The inference of a single job lasts
    until now; of several jobs, each counts until its own end.
    """
    validation_s = sum(job.validated - job.started for job in jobs)
    queue_s = sum(each.queue_s for each in timings)
    inferences_s = [each.prefill_s + each.decode_s for each in timings]
    if len(jobs) == 1:
        inferences_s = [max(*inferences_s, time.perf_counter() - jobs[0].validated - queue_s)]
    total_s = validation_s + queue_s + sum(inferences_s)
    per_token_s = sum(
        seconds / max(1, tokens) for seconds, tokens in zip(inferences_s, generated, strict=True)
    )
    return {
        **_input_headers(jobs),
        "x-compute-time": f"{total_s:.6f}",
        "x-total-time": _ms(total_s),
        "x-validation-time": _ms(validation_s),
        "x-queue-time": _ms(queue_s),
        "x-inference-time": _ms(sum(inferences_s)),
        "x-time-per-token": _ms(per_token_s),
        "x-prompt-tokens": str(sum(job.n_input for job in jobs)),
        "x-generated-tokens": str(sum(generated)),
    }


def stream_headers(jobs: Sequence[Job]) -> dict[str, str]:
    """Headers of a stream, whose times are not known yet. jobs: empty if the stream is only an error."""
    headers = {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
    }
    return {**headers, **_input_headers(jobs)} if jobs else headers


def _input_headers(jobs: Sequence[Job]) -> dict[str, str]:
    return {
        "x-compute-type": jobs[0].compute_type,
        "x-compute-characters": str(sum(len(job.native.inputs) for job in jobs)),
    }


def _ms(seconds: float) -> str:
    return str(int(seconds * 1000))
