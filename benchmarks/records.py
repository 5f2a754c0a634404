"""Counts the CPU time of what the server remembers of requests: `python -m benchmarks.records [--model FILE]`.

Each part runs with and without its records, by turns in one process, and the difference of the medians is its cost: in
the front for a token and for a request, in the engine for a step. CPU time does not depend on what else the machine
does, as far as caches and clocks allow. A real server tells how long a step of as many sequences takes.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Final, NamedTuple

import typer

from benchmarks.servers import ours, started
from jan_serve.api.activity.recent import Activities
from jan_serve.api.activity.totals import Totals
from jan_serve.core.events import Completed, Finished, GenerationEvent, Started, TextDelta, Timings, Usage
from jan_serve.core.messages import Message
from jan_serve.core.request import ChatPrompt
from jan_serve.core.trace import current_trace
from jan_serve.engine.sequence import RequestState
from jan_serve.engine.sequence_output import Waits
from jan_serve.generation.prompt_history import PromptHistory
from jan_serve.http.errors import Envelopes
from jan_serve.http.lifecycle import Lifecycle
from jan_serve.http.request_record import RequestContext, record_of
from jan_serve.ipc.messages import EngineRequest
from jan_serve.store.totals import TotalFiles

GOAL: Final = 0.005
"""Share of a step."""
_ROUNDS: Final = 15
_TOKENS: Final = 2_000
_SEQUENCES: Final = (1, 8, 64)


class Cost(NamedTuple):
    """CPU seconds of one unit of the work, without its records and with them."""

    part: str
    without: float
    recorded: float

    @property
    def added(self) -> float:
        return self.recorded - self.without


def main(
    model: Annotated[Path, typer.Option(help="GGUF whose steps are the measure")] = Path(
        "models/builtin/jan-tiny.gguf"
    ),
) -> None:
    steps_s = {sequences: step_of(model, sequences) for sequences in _SEQUENCES}
    token, request = of_the_front()
    for sequences, step_s in steps_s.items():
        print(f"a step of {model.stem} at {sequences} streams: {step_s * 1e6:,.0f} µs")
    print("\n| part | without | with | added | share of a step |\n|---|---|---|---|---|")
    shares = [_row(token, steps_s[1])]
    shares += [_row(of_a_step(sequences), step_s) for sequences, step_s in steps_s.items()]
    _row(request, None)
    if max(shares) > GOAL:
        sys.exit(f"more than {GOAL:.1%} of a step")


def _row(cost: Cost, step_s: float | None) -> float:
    share = cost.added / step_s if step_s is not None else 0.0
    shown = f"{share:.3%}" if step_s is not None else "once a request"
    times = " | ".join(f"{seconds * 1e6:.2f} µs" for seconds in (cost.without, cost.recorded, cost.added))
    print(f"| {cost.part} | {times} | {shown} |")
    return share


def step_of(model: Path, sequences: int, tokens: int = 400) -> float:
    """Seconds of a step that writes a token of each sequence: what users wait for, so wall time."""
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": tokens, "ignore_eos": True}).encode()
    with started(ours(f"--parallel {sequences}"), model) as server, ThreadPoolExecutor(sequences) as threads:

        def written(number: int) -> float:
            """Seconds for a token of this stream, beside the others."""
            headers = {"Content-Type": "application/json", "x-request-id": f"measured-{number}"}
            urllib.request.urlopen(
                urllib.request.Request(server.base + "/v1/completions", body, headers)
            ).read()
            found = json.load(urllib.request.urlopen(f"{server.base}/extras/why/measured-{number}"))
            seconds: float = found["phases"]["writing"]
            return seconds / found["completion_tokens"]

        list(threads.map(written, range(sequences)))
        return statistics.median(threads.map(written, range(sequences, 2 * sequences)))


def by_turns(count: int, *works: Callable[[], None], rounds: int = _ROUNDS) -> list[float]:
    """The median CPU time of each work, divided by `count`."""
    found: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, times in zip(works, found, strict=True):
            began = time.process_time()
            work()
            times.append((time.process_time() - began) / count)
    return [statistics.median(times) for times in found]


def of_the_front(rounds: int = _ROUNDS, tokens: int = _TOKENS) -> tuple[Cost, Cost]:
    """Costs of a token, and of a request of a conversation of 40 messages."""
    events: list[GenerationEvent] = [
        Started(model="m", prompt_tokens=5_000),
        *(TextDelta(0, "word ") for _ in range(tokens)),
        Finished(index=0, reason="stop", completion_tokens=tokens),
        Completed(usage=Usage(prompt_tokens=5_000, completion_tokens=tokens), timings=Timings()),
    ]
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder)) as call:
        short = events[:2] + events[-2:]
        plain, recorded = by_turns(
            tokens, lambda: call(events, False), lambda: call(events, True), rounds=rounds
        )
        bare, kept = by_turns(1, lambda: call(short, False), lambda: call(short, True), rounds=rounds * 10)
    return Cost("a token, in the front", plain, recorded), Cost("a request, in the front", bare, kept)


@contextmanager
def _served(folder: Path) -> Any:
    """Runs one request through the middleware, with or without all records."""
    totals = Totals(TotalFiles(folder))
    history, sent = PromptHistory(), list[int]()
    messages = tuple(
        Message(role="user" if number % 2 == 0 else "assistant", content=f"{number} " + "some words " * 100)
        for number in range(40)
    )

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        record = record_of(scope)
        if scope["recorded"]:
            trace = current_trace()
            trace.owner = ""
            with trace.spends("template"):
                history.compare(trace, "m", "", ChatPrompt(messages=messages))
        for event in scope["events"]:
            if scope["recorded"]:
                record.observe(event)
            sent.append(len(str(event)))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        sent.clear()

    def context(*watchers: Any) -> RequestContext:
        return RequestContext(
            respond, envelopes=Envelopes({}, _no_error), lifecycle=Lifecycle(), watchers=watchers
        )

    contexts = {False: context(), True: context(Activities(ended=totals.count))}
    loop = asyncio.new_event_loop()

    def call(events: Sequence[GenerationEvent], recorded: bool) -> None:
        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "headers": [],
        }
        scope |= {"events": events, "recorded": recorded}
        loop.run_until_complete(contexts[recorded](scope, _nothing, _nothing))

    try:
        yield call
    finally:
        loop.close()


def _no_error(*_: Any) -> Any:
    raise AssertionError("no request fails here")


async def _nothing(*_: Any) -> Any:
    """Neither a body nor a client."""


def of_a_step(sequences: int, rounds: int = _ROUNDS, steps: int = 2_000) -> Cost:
    """Cost of a step that writes a token of each sequence while a prompt is read."""
    requests = [EngineRequest(id=number, prompt=("x",), cache_salt="") for number in range(sequences + 1)]
    states = [RequestState(request, 1, 0.0, 1) for request in requests]
    readers: list[Any] = [SimpleNamespace(state=states[0])]
    waits = Waits()

    def without() -> None:
        for _ in range(steps):
            pass

    def recorded() -> None:
        for _ in range(steps):
            waits.step_read(readers, 0.001)
            for state in states:
                state.work.forced += 0

    return Cost(f"a step of {sequences} beside a prompt", *by_turns(steps, without, recorded, rounds=rounds))


if __name__ == "__main__":
    typer.run(main)
