"""Reports of a request that wants them: of each step of its prompt, and of its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.ipc.messages import RequestProgressed
from tests.support.engine.worker import Result, Worker, generate, running_worker
from tests.support.gguf.models import EXACT

pytestmark = pytest.mark.integration

PROMPT = "many words of a prompt " * 12
STEP, PARALLEL = 16, 4


def reports(
    worker: Worker, prompt: str, *, wanted: bool = True, n: int = 1
) -> tuple[Result, list[RequestProgressed]]:
    [result] = worker.run(generate(prompt, max_tokens=6, n=n, reports_progress=wanted))
    return result, [event for event in result.events if isinstance(event, RequestProgressed)]


@pytest.mark.parametrize("n", [1, 3])
def test_each_step_of_a_prompt_is_reported_up_to_its_end(exact_llama: Path, n: int) -> None:
    with running_worker(
        exact_llama, n_ctx=1024, parallel=PARALLEL, n_batch=STEP, n_ubatch=STEP, **EXACT
    ) as worker:
        first, seen = reports(worker, PROMPT, n=n)
        again, seen_again = reports(worker, PROMPT + "and more of it " * 4)
        silent, none = reports(worker, "Quite another text", wanted=False)
    assert not none and silent.completed is not None
    for result, events, is_cached in ((first, seen, False), (again, seen_again, True)):
        assert result.completed is not None
        total, cached = result.completed.prompt_tokens, result.completed.cached_tokens
        read = [event.read_tokens for event in events if event.read_tokens is not None]
        assert read[0] == cached and read[-1] == total and read == sorted(set(read))
        assert len(read) - 1 >= (total - cached) // (STEP + PARALLEL) and bool(cached) is is_cached
        assert {(event.usage.prompt_tokens, event.usage.cached_tokens) for event in events} == {
            (total, cached)
        }
        written = [event.usage.completion_tokens for event in events if event.read_tokens is None]
        assert written[-1] == 6 and max(written) == 6
