"""A load shows its progress on a terminal, and the bar ends however the load ends."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress, ProgressColumn

from jan_serve.cli.client.loading import load_model
from jan_serve.cli.errors import CommandError
from jan_serve.cli.output import Output


class Client:
    """A server that answers a load with these events, and then with an error if there is one."""

    def __init__(self, *events: dict[str, Any], error: Exception | None = None) -> None:
        self.events_to_send, self.error = events, error
        self.asked: list[tuple[str, Any]] = []

    def events(self, path: str, body: Any) -> Iterator[dict[str, Any]]:
        self.asked.append((path, body))
        yield from self.events_to_send
        if self.error is not None:
            raise self.error


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch) -> list[Progress]:
    """Those that a terminal was shown."""
    made: list[Progress] = []

    def progress(self: Output, *columns: str | ProgressColumn) -> Progress:
        made.append(Progress(*columns, console=Console(file=io.StringIO(), force_terminal=True)))
        return made[-1]

    monkeypatch.setattr(Output, "progress", progress)
    return made


def loading(fraction: float | None = None) -> dict[str, Any]:
    progress: dict[str, Any] = {} if fraction is None else {"progress": {"value": fraction}}
    return {"model": "org/m", "data": {"status": "loading", **progress}}


DONE: dict[str, Any] = {"model": "org/m", "data": {"status": "loaded"}}


def load(client: Client, **fields: object) -> str:
    server: Any = client
    return load_model(server, "m", **fields)


@pytest.mark.usefixtures("bars")
def test_the_full_name_comes_back_and_further_fields_are_sent() -> None:
    client = Client(loading(), DONE)
    assert load(client, ttl_s=5) == "org/m"
    assert client.asked == [("/models/load", {"model": "m", "stream": True, "ttl_s": 5})]


@pytest.mark.parametrize("events", [(), ({},), ({"data": None},)])
def test_a_server_that_names_nothing_means_the_name_that_was_asked_for(events: Any) -> None:
    assert load(Client(*events)) == "m"


def test_a_model_that_is_loaded_already_has_no_bar(bars: list[Progress]) -> None:
    load(Client(DONE))
    assert bars == []


def test_one_bar_shows_the_last_known_fraction(bars: list[Progress]) -> None:
    load(Client(loading(), loading(0.25), loading(0.5), loading(), DONE))
    [bar] = bars
    [task] = bar.tasks
    assert (task.description, task.completed, task.total) == ("org/m", 0.5, 1.0)
    assert bar.finished is False
    assert not bar.live.is_started


@pytest.mark.parametrize("error", [CommandError("It crashed."), KeyboardInterrupt()])
def test_a_bar_ends_with_a_failed_load(bars: list[Progress], error: Exception) -> None:
    with pytest.raises((CommandError, KeyboardInterrupt)):
        load(Client(loading(0.5), error=error))
    assert not bars[0].live.is_started


def test_without_a_terminal_a_load_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert load(Client(loading(0.5), DONE)) == "org/m"
    assert capsys.readouterr() == ("", "")
