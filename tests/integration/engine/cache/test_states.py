"""Sequences that one worker prefills and another one decodes."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.core.constraint import CompiledGrammar, Guide
from jan_serve.errors import InvalidRequest, InvalidState, JanServeError, Overloaded, error_from_payload
from jan_serve.ipc.messages import (
    DropState,
    Failed,
    ReadState,
    ResumeState,
    StateKept,
    StatePart,
    StateStored,
    StoreState,
)
from tests.support.engine.worker import Result, Worker, generate, next_id, running_worker
from tests.support.gguf.models import EXACT

PROMPT = (
    "Once upon a time there was a server that computed a prompt, and another one that went on from there."
)
STATE = 900_000
GRAMMAR = CompiledGrammar(lark='start: "forced" (/[a-z]/ " and ")+')


@pytest.fixture(scope="module")
def prefill(exact_llama: Path) -> Generator[Worker]:
    with running_worker(exact_llama, n_ctx=1024, parallel=4, **EXACT) as worker:
        yield worker


@pytest.fixture(scope="module")
def decode(exact_llama: Path) -> Generator[Worker]:
    with running_worker(exact_llama, n_ctx=2048, parallel=2, **EXACT) as worker:
        yield worker


def ask(worker: Worker, request: ReadState | StoreState) -> StatePart | StateStored:
    worker.send(request)
    event = worker.receive()
    if isinstance(event, Failed):
        raise error_from_payload(event.code, event.payload)
    assert isinstance(event, StatePart | StateStored) and event.id == request.id
    return event


def kept(result: Result) -> StateKept:
    assert result.error is None, result.error
    return next(event for event in result.events if isinstance(event, StateKept))


def read_state(worker: Worker, state: int, step: int = 30_000) -> bytes:
    data = b""
    while True:
        part = ask(worker, ReadState(id=next_id(), state=state, offset=len(data), length=step))
        assert isinstance(part, StatePart)
        data += part.data
        if len(data) >= part.total:
            return data


def store_state(worker: Worker, data: bytes, state: int = STATE, step: int = 50_000) -> None:
    for at in range(0, len(data), step):
        part = data[at : at + step]
        answer = ask(worker, StoreState(id=next_id(), state=state, offset=at, total=len(data), data=part))
        assert isinstance(answer, StateStored) and answer.received == at + len(part)


def drop(worker: Worker, state: int) -> None:
    """Returns after the state is dropped: requests about states are served in order."""
    worker.send(DropState(state))
    with pytest.raises(InvalidState, match="not kept"):
        ask(worker, ReadState(id=next_id(), state=state, offset=0, length=1))


def move(source: Worker, target: Worker, prompt: str = PROMPT, **fields: Any) -> tuple[Result, StateKept]:
    """Prefill on one and decode on the other; the result of the decode."""
    first = source.run_one(prompt, keep_state=True, return_tokens=True, **{**fields, "max_tokens": 1})
    state = kept(first)
    store_state(target, read_state(source, state.id))
    drop(source, state.id)
    result = target.run_one(prompt, resume=ResumeState(STATE, state.next_token), return_tokens=True, **fields)
    return result, state


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 40},
        {"max_tokens": 40, "temperature": 1.3, "seed": 7},
        {"max_tokens": 40, "temperature": 0.9, "seed": 11, "logprobs": 3, "repeat_penalty": 1.3},
        {"max_tokens": 1},
        {"max_tokens": 30, "stop": ("e", "a")},
        {"max_tokens": 24, "temperature": 1.0, "seed": 3, "mirostat_mode": 2},
        {"max_tokens": 24, "temperature": 1.0, "seed": 3, "guide": Guide(grammar=GRAMMAR)},
        {"max_tokens": 24, "guide": Guide(grammar=GRAMMAR), "logprobs": 1},
    ],
    ids=str,
)
def test_the_answer_is_that_of_one_server(prefill: Worker, decode: Worker, fields: dict[str, Any]) -> None:
    alone = prefill.run_one(PROMPT, return_tokens=True, **fields)
    moved, state = move(prefill, decode, **fields)
    assert (moved.text, moved.choice.ids) == (alone.text, alone.choice.ids)
    for mine, theirs in zip(moved.choice.tokens, alone.choice.tokens, strict=True):
        assert [top.id for top in mine.top] == [top.id for top in theirs.top]
        if mine.logprob is None or theirs.logprob is None:
            assert "logprobs" not in fields
        else:
            assert mine.logprob == pytest.approx(theirs.logprob, abs=1e-4)
    assert moved.usage.cached_tokens == state.tokens == moved.usage.prompt_tokens
    assert (prefill.stats().states, decode.stats().states) == (0, 0)


def test_an_unseeded_sample_goes_on_with_the_token_of_the_prefill(prefill: Worker, decode: Worker) -> None:
    for _ in range(5):
        moved, state = move(prefill, decode, temperature=1.5, max_tokens=4, ignore_eos=True)
        assert moved.choice.ids[0] == state.next_token


def test_nothing_is_computed_again(prefill: Worker, decode: Worker) -> None:
    prompt = f"A prompt that nobody has seen before. {PROMPT}"
    before = decode.stats()
    moved, state = move(prefill, decode, prompt, max_tokens=10)
    after = decode.stats()
    assert moved.choice.end.completion_tokens == 10
    assert state.tokens > 50
    assert after.computed_tokens_total - before.computed_tokens_total == 9
    again = decode.run_one(prompt, max_tokens=10)
    assert again.usage.cached_tokens >= state.tokens - 1, "what was brought serves as prefix cache"


@pytest.mark.parametrize("model", ["exact_recurrent", "exact_hybrid"])
def test_recurrent_states_move_too(request: pytest.FixtureRequest, model: str) -> None:
    path: Path = request.getfixturevalue(model)
    with running_worker(path, n_ctx=512, parallel=2, **EXACT) as source:
        alone = source.run_one(PROMPT, max_tokens=24)
        with running_worker(path, n_ctx=512, parallel=2, **EXACT) as target:
            moved, _ = move(source, target, max_tokens=24)
    assert moved.text == alone.text


@pytest.mark.parametrize(
    ("start", "end", "put", "words"),
    [
        (0, -1, b"", "checksum"),
        (0, -4, b"abcd", "checksum"),
        (4, None, b"GGUF", "not the state"),
        (0, 20, b"", "incomplete"),
    ],
)
def test_a_damaged_state_is_refused(
    prefill: Worker, decode: Worker, start: int, end: int | None, put: bytes, words: str
) -> None:
    state = kept(prefill.run_one(PROMPT, keep_state=True, max_tokens=1))
    data = read_state(prefill, state.id)
    drop(prefill, state.id)
    with pytest.raises(InvalidState, match=words):
        store_state(decode, put + data[start:end] if start else data[start:end] + put)
    drop(decode, STATE)
    assert (prefill.stats().states, decode.stats().states) == (0, 0)
    assert decode.run_one(PROMPT, max_tokens=2).error is None


def test_other_weights_and_other_types_are_refused(
    prefill: Worker, tiny_llama: Path, exact_llama: Path
) -> None:
    state = kept(prefill.run_one(PROMPT, keep_state=True, max_tokens=1))
    data = read_state(prefill, state.id)
    drop(prefill, state.id)
    words = "types f32 and f32, and this one f16 and f16"
    with (
        running_worker(tiny_llama, n_ctx=512, parallel=1, **EXACT) as other,
        pytest.raises(InvalidState, match="another model"),
    ):
        store_state(other, data)
    with (
        running_worker(exact_llama, n_ctx=512, parallel=1, threads=1) as other,
        pytest.raises(InvalidState, match=words),
    ):
        store_state(other, data)


def test_a_state_belongs_to_its_prompt_and_token(prefill: Worker, decode: Worker) -> None:
    state = kept(prefill.run_one(PROMPT, keep_state=True, max_tokens=1))
    data = read_state(prefill, state.id)
    drop(prefill, state.id)
    store_state(decode, data)
    with pytest.raises(InvalidState, match="another prompt"):
        _ = decode.run_one("Another prompt", resume=ResumeState(STATE)).text
    store_state(decode, data)
    with pytest.raises(InvalidState, match=f"continues with token {state.next_token}"):
        _ = decode.run_one(PROMPT, resume=ResumeState(STATE, state.next_token + 1)).text
    with pytest.raises(InvalidRequest, match="not here"):
        _ = decode.run_one(PROMPT, resume=ResumeState(STATE)).text
    with pytest.raises(InvalidState, match="do not fit together"):
        ask(decode, StoreState(id=next_id(), state=STATE, offset=10, total=100, data=b"x"))
    with pytest.raises(InvalidState, match="not kept"):
        ask(prefill, ReadState(id=next_id(), state=state.id, offset=0, length=10))
    with pytest.raises(InvalidRequest, match="one choice"):
        _ = prefill.run_one(PROMPT, keep_state=True, n=2).texts
    assert (prefill.stats().states, decode.stats().states) == (0, 0)


def test_dropped_states_are_gone(prefill: Worker, decode: Worker) -> None:
    state = kept(prefill.run_one(PROMPT, keep_state=True, max_tokens=1))
    store_state(decode, read_state(prefill, state.id))
    drop(prefill, state.id)
    drop(decode, STATE)
    assert (prefill.stats().states, decode.stats().states) == (0, 0)


def test_states_are_bounded(exact_llama: Path) -> None:
    with running_worker(exact_llama, n_ctx=512, parallel=1, state_bytes=1000, **EXACT) as worker:
        result = worker.run(generate(PROMPT, keep_state=True, max_tokens=1))[0]
        with pytest.raises(Overloaded, match="no room for the cache"):
            raise result.error or AssertionError("it was kept")
        with pytest.raises(Overloaded):
            ask(worker, StoreState(id=next_id(), state=STATE, offset=0, total=2000, data=b"x"))
        assert worker.stats().states == 0
        assert worker.run_one(PROMPT, max_tokens=3).error is None


def test_a_full_memory_makes_room(prefill: Worker, exact_llama: Path) -> None:
    """The cells are full of cached sequences when the state comes."""
    with running_worker(exact_llama, n_ctx=256, parallel=2, **EXACT) as small:
        for number in range(4):
            small.run_one(f"{number} {PROMPT}", max_tokens=5)
        alone = prefill.run_one(PROMPT, max_tokens=12)
        moved, state = move(prefill, small, max_tokens=12)
    assert moved.text == alone.text
    assert moved.usage.cached_tokens == state.tokens


def test_errors_cross_the_pipe() -> None:
    error: JanServeError = InvalidState("why", param="migration_request")
    assert repr(error_from_payload(error.code, error.payload())) == repr(error)
