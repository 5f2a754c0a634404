"""The protocol of a worker process: its first frame, its answers without the engine, and how it ends."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from jan_serve.core.models import ModelFacts
from jan_serve.errors import InvalidModel, InvalidRequest, UnsupportedOperation, error_from_payload
from jan_serve.ipc.messages import (
    PROTOCOL_VERSION,
    AbortRequest,
    EngineSettings,
    Failed,
    LoadFailed,
    LoadModel,
    LoadProgress,
    PingRequest,
    Pong,
    ShutdownRequest,
    Tokenized,
    TokenizeRequest,
    WorkerEvent,
    WorkerRequest,
)
from tests.support.engine.worker import (
    LIMIT_S,
    Worker,
    WorkerEnded,
    generate,
    next_id,
    running_worker,
    started_worker,
    worker_command,
    worker_environment,
)

pytestmark = pytest.mark.integration

SMALL = EngineSettings(n_ctx=256, threads=1)


@pytest.fixture
def unloaded() -> Generator[Worker]:
    """A process that waits for its model."""
    with started_worker() as worker:
        yield worker


def until_end(worker: Worker) -> list[WorkerEvent]:
    """All that it sends before it ends."""
    events: list[WorkerEvent] = []
    while True:
        try:
            events.append(worker.receive())
        except WorkerEnded:
            return events


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (PingRequest(1), "the first frame of a worker is LoadModel"),
        (generate("x"), "the first frame of a worker is LoadModel"),
        (
            LoadModel(path="x", protocol=PROTOCOL_VERSION + 1),
            f"speaks protocol {PROTOCOL_VERSION}, the front",
        ),
    ],
    ids=["ping", "request", "protocol"],
)
def test_another_first_frame_ends_it(unloaded: Worker, request_: WorkerRequest, words: str) -> None:
    unloaded.send(request_)
    assert until_end(unloaded) == []
    assert unloaded.process.wait(LIMIT_S) == 1
    assert words in unloaded.stderr()


@pytest.mark.parametrize("says", [True, False], ids=["shutdown", "end of the pipe"])
def test_one_that_is_not_wanted_ends_in_peace(unloaded: Worker, says: bool) -> None:
    if says:
        unloaded.send(ShutdownRequest())
        assert until_end(unloaded) == []
    unloaded.close()
    assert unloaded.process.returncode == 0
    assert unloaded.stderr() == ""


def test_a_load_is_reported_up_to_its_end(unloaded: Worker, tiny_llama: Path) -> None:
    unloaded.send(LoadModel(path=str(tiny_llama), settings=SMALL), PingRequest(5))
    events: list[WorkerEvent] = []
    while not {ModelFacts, Pong} <= {type(event) for event in events}:
        events.append(unloaded.receive())
    fractions = [event.fraction for event in events if isinstance(event, LoadProgress)]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    assert [event.nonce for event in events if isinstance(event, Pong)] == [5]
    [facts] = [event for event in events if isinstance(event, ModelFacts)]
    assert facts.n_ctx == 256


def test_a_load_that_fails_ends_it_with_the_reason(unloaded: Worker, tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_text("hello" * 100)
    unloaded.send(LoadModel(path=str(tmp_path / "no.gguf"), settings=SMALL))
    *_, last = until_end(unloaded)
    assert isinstance(last, LoadFailed)
    assert isinstance(error_from_payload(last.code, last.payload), InvalidModel)
    assert unloaded.process.wait(LIMIT_S) == 1


def test_a_second_model_ends_it(unloaded: Worker, tiny_llama: Path) -> None:
    load = LoadModel(path=str(tiny_llama), settings=SMALL)
    unloaded.load(tiny_llama, SMALL)
    unloaded.send(load)
    assert until_end(unloaded) == []
    assert unloaded.process.wait(LIMIT_S) == 1
    assert "a worker loads one model" in unloaded.stderr()


def test_texts_become_tokens_and_again_texts(llama: Worker) -> None:
    text = "Héllo, wörld <|im_end|>"
    found = llama.tokenize(text, add_special=False, parse_special=True, with_pieces=True)
    assert b"".join(found.pieces) == text.encode() and len(found.pieces) == len(found.tokens)
    assert llama.tokenize(text, add_special=False, parse_special=True).pieces == []
    plain = llama.tokenize(text, add_special=False, parse_special=False)
    assert len(plain.tokens) > len(found.tokens)
    assert llama.detokenize(found.tokens, skip_special_tokens=False) == text
    assert llama.detokenize(found.tokens, skip_special_tokens=True) == "Héllo, wörld "


@pytest.mark.parametrize("words", [0, 1, 5000, 50_000])
def test_the_answer_to_a_long_text_comes_in_small_parts(llama: Worker, words: int) -> None:
    text = "word " * words
    request = TokenizeRequest(id=next_id(), text=text, add_special=False, with_pieces=True)
    llama.send(request)
    parts: list[Tokenized] = []
    while not parts or not parts[-1].is_last:
        part = llama.receive()
        assert isinstance(part, Tokenized) and part.id == request.id
        parts.append(part)
    assert max(len(part.tokens) for part in parts) <= 4096
    assert b"".join(piece for part in parts for piece in part.pieces).decode() == text


@pytest.mark.parametrize("token", [-1, 1 << 30])
def test_a_request_that_cannot_be_prepared_fails_alone(llama: Worker, token: int) -> None:
    with pytest.raises(InvalidRequest, match=f"{token}"):
        llama.detokenize([token])
    assert isinstance(llama.run_one([token], max_tokens=1).error, InvalidRequest)
    assert llama.run_one("hello", max_tokens=1).choice.end.completion_tokens == 1


def test_a_request_that_is_aborted_at_once_leaves_nothing(llama: Worker) -> None:
    """Wherever the abort meets it: in the queue of the intake, in the intake, or in the engine."""
    for _ in range(20):
        gone = generate("hello " * 50, max_tokens=200, ignore_eos=True)
        llama.send(gone, AbortRequest(gone.id))
    result = llama.run_one("hello", max_tokens=2, ignore_eos=True)
    assert result.choice.end.completion_tokens == 2
    stats = llama.stats()
    assert (stats.running, stats.waiting) == (0, 0)


def test_a_model_that_only_embeds_generates_nothing(tiny_bert: Path) -> None:
    with running_worker(tiny_bert) as worker:
        request = generate("hello")
        worker.send(request)
        answer = worker.receive()
        assert isinstance(answer, Failed) and answer.id == request.id
        assert isinstance(error_from_payload(answer.code, answer.payload), UnsupportedOperation)
        assert worker.embed("hello").dimensions == worker.facts.n_embd
        worker.send(ShutdownRequest())
        assert worker.process.wait(LIMIT_S) == 0


def test_the_probe_is_one_line_about_the_build() -> None:
    command = [*worker_command(), "--probe"]
    found = subprocess.run(
        command, env=worker_environment(), capture_output=True, timeout=LIMIT_S, check=True
    )
    [line] = found.stdout.splitlines()
    facts = json.loads(line)
    assert "system_info" in facts
    assert any(device["kind"] == "cpu" for device in facts["devices"])
