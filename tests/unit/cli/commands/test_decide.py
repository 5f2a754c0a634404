"""decide: what it says of calibrations."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.commands import decide as decide_module
from jan_serve.cli.commands.decide import note_calibration
from jan_serve.cli.errors import WRONG_USE, CommandError
from tests.unit.cli.conftest import Run

FOUND: dict[str, Any] = {
    "temperature": 20.0,
    "examples": 3,
    "accuracy": 1.0,
    "loss_before": 2.0,
    "loss_after": 1.0,
    "at_bound": True,
}


def noted(capsys: pytest.CaptureFixture[str], **changes: Any) -> str:
    note_calibration("m", FOUND | changes)
    return capsys.readouterr().err


def test_harder_examples_help_only_a_model_that_is_always_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert "harder ones" in noted(capsys)
    wrong = noted(capsys, accuracy=0.0)
    assert "harder" not in wrong
    assert "check the answers" in wrong
    assert "bound" not in noted(capsys, at_bound=False)


@pytest.mark.parametrize(
    ("mass", "expected"),
    [(0.4, "would write one of them with probability 0.4"), (1e-5, "Not reliable: on its own the model")],
)
def test_shares_of_almost_nothing_are_not_reliable(
    run: Run, monkeypatch: pytest.MonkeyPatch, mass: float, expected: str
) -> None:
    options = [{"option": "a", "probability": 0.9}, {"option": "b", "probability": 0.1}]
    answer = {"options": options, "mass": mass, "abstained": False, "answer": "a"}
    reply = {"answers": {"answer": answer}, "calibration": None}

    def giving(value: object) -> Any:
        def give(*_: Any, **__: Any) -> Any:
            return value

        return give

    monkeypatch.setattr(decide_module, "any_server", giving(contextlib.nullcontext()))
    monkeypatch.setattr(decide_module, "ready_model", giving("m"))
    monkeypatch.setattr(decide_module, "_decided", giving(reply))
    assert expected in " ".join(run("decide", "m", "which?", "text", "--options", "a,b").err.split())


def test_what_is_missing_is_said_with_what_was_read_as_the_model(run: Run) -> None:
    assert "('My parcel is late' is the model)" in run("decide", "My parcel is late", "--options", "a,b").err
    assert "('docs.txt' is the model)" in run("rerank", "docs.txt", "query").err


def test_a_missing_file_is_named_once_and_starts_no_server(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def any_server(*_: Any, **__: Any) -> None:
        raise AssertionError("a server was asked")

    monkeypatch.setattr(decide_module, "any_server", any_server)
    file = tmp_path / "examples.jsonl"
    answer = run("decide", "m", "--calibrate", str(file))
    assert (answer.status, answer.err) == (2, f"error: cannot read {file}: No such file or directory\n")
    file.write_text("{}\n{\n")
    assert f"{file}, line 2 is not JSON" in run("decide", "m", "--calibrate", str(file)).err


@pytest.mark.parametrize(
    ("message", "shown", "next_step"),
    [
        (
            "calibrated: `m` has no calibration; POST /v1/decide/calibration makes one.",
            "calibrated: `m` has no calibration",
            "`jan-serve decide m --calibrate FILE` makes one.",
        ),
        ("state: too long; it has 9 tokens", "state: too long; it has 9 tokens", None),
    ],
)
def test_a_model_without_a_calibration_names_the_command(
    run: Run, monkeypatch: pytest.MonkeyPatch, message: str, shown: str, next_step: str | None
) -> None:
    class Client:
        def post(self, path: str, body: object) -> None:
            raise CommandError(message, None, WRONG_USE)

    @contextlib.contextmanager
    def any_server(*_: Any, **__: Any) -> Generator[Client]:
        yield Client()

    def ready_model(*_: Any) -> str:
        return "m"

    monkeypatch.setattr(decide_module, "any_server", any_server)
    monkeypatch.setattr(decide_module, "ready_model", ready_model)
    answer = run("decide", "m", "Q?", "T", "--calibrated")
    lines = [f"error: {shown}", *([next_step] if next_step else [])]
    assert (answer.status, answer.err.splitlines()) == (2, lines)
