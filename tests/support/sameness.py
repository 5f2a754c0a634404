"""Compares answers of one prompt that were computed in different batches."""

from __future__ import annotations

import os
from typing import Final

import msgspec
import pytest

from jan_serve.ipc.messages import EngineRequest
from tests.support.engine.worker import Choice, Worker, next_id

IS_ON_DEVICE: Final = os.environ.get("JAN_SERVE_TEST_LAYERS") == "all"
"""An accelerator's kernels depend on the number of rows, and many round to ten bits (TF32): tokens about as likely as
each other may change places there."""
_ERROR: Final = 0.1 if IS_ON_DEVICE else 1e-3
"""Error of a log-probability. A cell left out or a shifted position changes one by 2.6 here, another token by 0.03 to
2.6."""

Outcome = tuple[str, str, int, str | None]


def outcome(choice: Choice) -> Outcome:
    """A choice as its caller sees it, however it was split into chunks."""
    end = choice.end
    return choice.text, end.reason, end.completion_tokens, end.stop


def is_greedy(request: EngineRequest) -> bool:
    """Whether the most likely token of the raw logits is taken."""
    sampling = request.sampling
    penalties = sampling.repeat_penalty, sampling.presence_penalty, sampling.frequency_penalty
    is_free = request.guide is None and not sampling.logit_bias
    return is_free and sampling.temperature == 0.0 and penalties == (1.0, 0.0, 0.0)


def assert_same(worker: Worker, request: EngineRequest, found: Choice, expected: Choice) -> None:
    """The same outcome, and logprobs where they were asked for.

    On an accelerator greedy answers with tokens may part where both next tokens are about as likely, and others are not
    compared. `worker` must be idle.
    """
    if IS_ON_DEVICE and not (is_greedy(request) and request.return_tokens):
        return
    parts_at = next(
        (i for i, (one, other) in enumerate(zip(found.ids, expected.ids, strict=False)) if one != other), None
    )
    for one, other in zip(found.tokens[:parts_at], expected.tokens, strict=False):
        assert one.logprob == pytest.approx(other.logprob, abs=_ERROR), (one, other)
    if IS_ON_DEVICE and parts_at is not None:
        _assert_as_likely(
            worker, request, expected.ids[:parts_at], found.ids[parts_at], expected.ids[parts_at]
        )
    else:
        assert outcome(found) == outcome(expected)
        assert found.ids == expected.ids


def _assert_as_likely(
    worker: Worker, request: EngineRequest, common: list[int], one: int, other: int
) -> None:
    """Ask for the token after what both answers have in common."""
    stopping = msgspec.structs.replace(request.stopping, max_tokens=1, stop=())
    prompt = (*request.prompt, tuple(common)) if common else request.prompt
    again = msgspec.structs.replace(
        request, id=next_id(), prompt=prompt, n=1, logprobs=5, prompt_logprobs=None, stopping=stopping
    )
    [token] = worker.run(again)[0].choice.tokens
    likely = {info.id: info.logprob for info in token.top}
    assert {one, other} <= likely.keys(), f"tokens {one} and {other} are not both likely: {likely}"
    assert likely[one] == pytest.approx(likely[other], abs=_ERROR), (one, other, likely)
