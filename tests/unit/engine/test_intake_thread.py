"""The intake thread: what is aborted is not begun, and an error fails its request only."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jan_serve.engine import intake_thread
from jan_serve.engine.intake_thread import IntakeThread
from jan_serve.engine.queues import Command, CommandQueue
from jan_serve.engine.tokenizing import Work
from jan_serve.errors import InvalidRequest
from jan_serve.ipc.attachments import Attachments
from jan_serve.ipc.messages import AbortRequest, EngineRequest, Failed, MediaData, Step, TokenizeRequest
from tests.unit.test_errors import SHORTAGES

TOO_MANY_FILES = OSError(errno.EMFILE, "Too many open files")


class End(BaseException):
    """Ends the thread's body."""


def _end(_text: str, **_options: object) -> Work[list[int]]:
    raise End
    yield None


def in_parts(prepare: Callable[[EngineRequest], Any], parts: int = 1) -> Callable[[EngineRequest], Work[Any]]:
    """Prepare in so many parts."""

    def work(item: EngineRequest) -> Work[Any]:
        for _ in range(parts - 1):
            yield None
        return prepare(item)

    return work


LIMIT = 1 << 20


class Running:
    """An intake thread that prepares with `prepare`, and what it sent and gave the engine thread."""

    def __init__(self, prepare: Callable[[EngineRequest], Any], parts: int = 1) -> None:
        self.sent: list[Any] = []
        self.commands = CommandQueue()
        self.attachments = Attachments(LIMIT)
        self.thread = IntakeThread(self.sent.append, self.commands, self.attachments)
        self.tables = SimpleNamespace(complete=True, advance=lambda: None)
        self.intake: Any = SimpleNamespace(
            prepare=in_parts(prepare, parts), token_tables=self.tables, tokenizer=SimpleNamespace(tokens=_end)
        )
        self.loaded: Any = SimpleNamespace(model=SimpleNamespace(vocab=None))

    def run(self, *items: Any, can_generate: bool = True) -> list[Command]:
        """The commands that come of these items, up to one that tokenises a text."""
        for item in items:
            self.thread.put(item)
        engine: Any = SimpleNamespace(has_work=False, make_way=lambda: None) if can_generate else None
        with pytest.raises(End):
            self.thread.run(self.loaded, self.intake, engine)
        return self.commands.take(wait=False)


def sequences_of(request: EngineRequest) -> Any:
    return [SimpleNamespace(state=SimpleNamespace(prompt_length=3), id=request.id)]


LAST = TokenizeRequest(id=0, text="")


def request(number: int, client: str = "") -> EngineRequest:
    return EngineRequest(cache_salt="", id=number, prompt=("a",), client=client)


def test_an_accepted_request_goes_to_the_engine_after_the_front_knows() -> None:
    running = Running(sequences_of)
    assert len(running.run(request(4), LAST)) == 1
    (step,) = running.sent
    assert isinstance(step, Step)
    assert [event.id for event in step.events] == [4]


def test_an_aborted_request_is_not_begun_and_the_next_of_its_id_is() -> None:
    prepared: list[int] = []

    def prepare(item: EngineRequest) -> Any:
        prepared.append(item.id)
        return sequences_of(item)

    running = Running(prepare)
    running.thread.skip(1)
    abort = AbortRequest(id=1)
    commands = running.run(request(1), request(2), abort, request(1), LAST)
    assert prepared == [2, 1]
    assert abort in commands, "what was being prepared when it came is aborted in the engine"


def test_errors_fail_their_request_and_free_its_images(capfd: pytest.CaptureFixture[str]) -> None:
    shortages = dict(enumerate((*SHORTAGES, TOO_MANY_FILES), 5))

    def prepare(item: EngineRequest) -> Any:
        if item.id == 1:
            raise InvalidRequest("too long", param="prompt")
        if item.id == 2:
            raise ZeroDivisionError
        if item.id in shortages:
            raise shortages[item.id]
        return sequences_of(item)

    running = Running(prepare)
    for number in (1, 2):
        running.attachments.add(MediaData(id=number, digest="d", data=b"1234"))
    commands = running.run(request(1), request(2), *map(request, shortages), request(3), LAST)
    running.attachments.add(MediaData(id=4, digest="d", data=bytes(LIMIT + 1)))
    running.attachments.complete(request(4))
    failed = [event for event in running.sent if isinstance(event, Failed)]
    assert [(event.id, event.code) for event in failed] == [
        (1, "invalid_request"),
        (2, "engine_failure"),
        *((number, "insufficient_memory") for number in shortages if number - 5 < len(SHORTAGES)),
        (5 + len(SHORTAGES), "unavailable"),
    ]
    assert len(commands) == 1
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_model_that_only_embeds_writes_no_text() -> None:
    running = Running(sequences_of)
    assert running.run(request(1), LAST, can_generate=False) == []
    assert [event.code for event in running.sent] == ["unsupported_operation"]


def test_while_it_rests_it_makes_the_tables_of_the_first_grammar() -> None:
    running = Running(sequences_of)

    def advance() -> None:
        running.tables.complete = True
        running.thread.put(LAST)

    running.tables.complete, running.tables.advance = False, advance
    running.run()
    assert running.tables.complete


def test_where_a_rest_has_no_memory_the_worker_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_thread, "_SHORTAGE_S", 0.01)
    shortages = iter((*SHORTAGES, TOO_MANY_FILES))

    def advance() -> None:
        for shortage in shortages:
            raise shortage
        running.tables.complete = True
        running.thread.put(LAST)

    running = Running(sequences_of)
    running.tables.complete, running.tables.advance = False, advance
    running.run()
    assert running.tables.complete


def test_clients_and_then_requests_take_turns_after_each_part() -> None:
    done: list[int] = []

    def prepare(item: EngineRequest) -> Any:
        done.append(item.id)
        if len(done) == 5:
            raise End
        return sequences_of(item)

    running = Running(prepare, parts=3)
    short = request(9, "b")
    items = [request(1, "a"), request(2, "a"), request(3, "a"), request(4, "a"), short]
    for item in items:
        running.thread.put(item)
    with pytest.raises(End):
        running.thread.run(
            running.loaded, running.intake, cast(Any, SimpleNamespace(has_work=False, make_way=lambda: None))
        )
    assert done == [9, 1, 2, 3, 4], "after three turns of the other client, not twelve"


def test_a_request_that_waits_for_another_thread_lets_others_pass_and_tells_its_phase() -> None:
    future: Future[None] = Future()
    phases: list[str] = []

    def prepare(item: EngineRequest) -> Work[Any]:
        if item.id == 1:
            yield future
        else:
            phases.append(running.thread.phase.read()[0])
            future.set_result(None)
        return sequences_of(item)

    running = Running(sequences_of)
    running.intake.prepare = prepare

    def last(_text: str, **_options: object) -> Work[list[int]]:
        while len(running.sent) < 2:
            yield None
        raise End

    running.intake.tokenizer.tokens = last
    running.run(request(1), request(2), LAST)
    assert [step.events[0].id for step in running.sent] == [2, 1]
    assert phases == ["tokenize"]


def test_an_abort_ends_the_work_on_a_long_request() -> None:
    closed: list[int] = []

    def prepare(item: EngineRequest) -> Work[Any]:
        try:
            while True:
                if item.id == 2:
                    running.thread.skip(1)
                    running.thread.put(AbortRequest(id=1))
                    return sequences_of(item)
                yield None
        finally:
            closed.append(item.id)

    running = Running(sequences_of)
    running.intake.prepare = prepare

    def last(_text: str, **_options: object) -> Work[list[int]]:
        while 1 not in closed:
            yield None
        raise End

    running.intake.tokenizer.tokens = last
    commands = running.run(request(1), request(2), LAST)
    assert closed == [2, 1]
    assert commands[1:] == [AbortRequest(id=1)]
