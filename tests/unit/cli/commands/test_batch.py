"""batch against a server with fake engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Run


def lines(*bodies: dict[str, Any]) -> bytes:
    return b"".join(
        json.dumps(
            {"custom_id": str(number), "method": "POST", "url": "/v1/chat/completions", "body": body}
        ).encode()
        + b"\n"
        for number, body in enumerate(bodies)
    )


GOOD: dict[str, Any] = {"model": "alpha", "messages": [{"role": "user", "content": "Hi."}]}


def test_the_answers_lie_beside_the_file(ask: Run, tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    path.write_bytes(lines(GOOD, {**GOOD, "temperature": -1}, GOOD))
    answer = ask("batch", str(path))
    assert answer.status == 1, "a line was refused"
    answers = [json.loads(line) for line in (tmp_path / "work.answers.jsonl").read_text().splitlines()]
    errors = [json.loads(line) for line in (tmp_path / "work.errors.jsonl").read_text().splitlines()]
    assert [each["custom_id"] for each in answers] == ["0", "2"]
    assert [each["custom_id"] for each in errors] == ["1"]
    assert "3 of 3, 1 refused" in answer.out
    (listed,) = json.loads(ask("batch", "ls", "--json").out)["data"]
    assert listed["id"] in ask("batch", "ls").out
    assert "completed" in ask("batch", "show", listed["id"]).out
    assert "completed" in ask("batch", "cancel", listed["id"]).err


def test_an_input_that_is_no_batch_is_explained(ask: Run, tmp_path: Path) -> None:
    path = tmp_path / "work.jsonl"
    path.write_bytes(lines(GOOD) + b"{\n")
    answer = ask("batch", str(path))
    assert answer.status == 1
    assert "line 2" in answer.out
    path.write_bytes(lines(GOOD))
    assert json.loads(ask("batch", str(path), "--no-wait", "--json").out)["status"] == "validating"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing.jsonl",), "missing.jsonl"),
        (("show",), "take the ID"),
        (("ls", "batch_1"), "take the ID"),
        (("show", "batch_1"), "batch_1"),
    ],
)
def test_wrong_use_is_said(ask: Run, words: tuple[str, ...], message: str) -> None:
    answer = ask("batch", *words)
    assert answer.status != 0
    assert message in answer.err


def test_a_file_of_another_kind_is_refused(ask: Run, tmp_path: Path) -> None:
    (tmp_path / "work.jsonl").write_text("[]\n")
    assert "no request with a `url`" in ask("batch", str(tmp_path / "work.jsonl")).err
