"""The intake thread: what is aborted is not begun, and an error fails its request only."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from jan_serve.engine.command_queue import Command, CommandQueue
from jan_serve.engine.intake_thread import IntakeThread
from jan_serve.engine.media.attachments import Attachments
from jan_serve.errors import InvalidRequest
from jan_serve.ipc.messages import AbortRequest, EngineRequest, Failed, MediaData, Step, TokenizeRequest


class End(BaseException):
    """Ends the thread's body."""


def _end(_text: str, **_options: object) -> None:
    raise End


class Running:
    """An intake thread that prepares with `prepare`, and what it sent and gave the engine thread."""

    def __init__(self, prepare: Callable[[EngineRequest], Any]) -> None:
        self.sent: list[Any] = []
        self.commands = CommandQueue()
        self.attachments = Attachments(1 << 20)
        self.thread = IntakeThread(self.sent.append, self.commands, self.attachments)
        self.tables = SimpleNamespace(complete=True, advance=lambda: None)
        self._intake: Any = SimpleNamespace(prepare=prepare, token_tables=self.tables)
        self._loaded: Any = SimpleNamespace(model=SimpleNamespace(vocab=SimpleNamespace(tokenize=_end)))

    def run(self, *items: Any, can_generate: bool = True) -> list[Command]:
        """The commands that come of these items, up to one that tokenises a text."""
        for item in items:
            self.thread.put(item)
        engine: Any = SimpleNamespace(has_work=False) if can_generate else None
        with pytest.raises(End):
            self.thread.run(self._loaded, self._intake, engine)
        return self.commands.take(wait=False)


def sequences_of(request: EngineRequest) -> Any:
    return [SimpleNamespace(state=SimpleNamespace(prompt_length=3), id=request.id)]


LAST = TokenizeRequest(id=0, text="")


def request(number: int) -> EngineRequest:
    return EngineRequest(id=number, prompt=("a",))


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
    assert commands[1] == abort, "what was being prepared when it came is aborted in the engine"


def test_errors_fail_their_request_and_free_its_images(capfd: pytest.CaptureFixture[str]) -> None:
    def prepare(item: EngineRequest) -> Any:
        if item.id == 1:
            raise InvalidRequest("too long", param="prompt")
        if item.id == 2:
            raise ZeroDivisionError
        return sequences_of(item)

    running = Running(prepare)
    for number in (1, 2):
        running.attachments.add(MediaData(id=number, digest="d", data=b"1234"))
    commands = running.run(request(1), request(2), request(3), LAST)
    assert running.attachments.held_bytes == 0
    failed = [event for event in running.sent if isinstance(event, Failed)]
    assert [(event.id, event.code) for event in failed] == [(1, "invalid_request"), (2, "engine_failure")]
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
