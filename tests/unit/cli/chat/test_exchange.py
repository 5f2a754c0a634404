"""One answer: its statistics and its display."""

from __future__ import annotations

import pytest

from jan_serve.cli.chat.exchange import AnswerDisplay, ChatAnswer
from jan_serve.cli.output import Output


def test_statistics() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    timings = {"prompt_per_second": 100.04, "predicted_per_second": 0.0}
    assert ChatAnswer(usage=usage, timings=timings).statistics() == (
        "9 prompt tokens (4 cached), 3 answer tokens, processed at 100.0 tokens/s"
    )
    assert "incomplete" in ChatAnswer().statistics()


CASES: list[tuple[list[str], str, str]] = [
    (["t:Hello"], "Hello\n", ""),
    (["t:Hello\n"], "Hello\n", ""),
    (["t:Hel", "t:lo\n", "t:you"], "Hello\nyou\n", ""),
    ([], "", ""),
    (["r:hm", "r: well", "t:Yes"], "Yes\n", "hm well\n\n"),
    (["r:hm\n", "t:Yes"], "Yes\n", "hm\n\n"),
    (["r:cut"], "", "cut\n\n"),
]


@pytest.mark.parametrize(("pieces", "out", "err"), CASES)
def test_each_part_goes_to_its_stream(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, pieces: list[str], out: str, err: str
) -> None:
    for on_terminal in (True, False):
        monkeypatch.setattr(Output, "notes_on_terminal", property(lambda self, value=on_terminal: value))
        display = AnswerDisplay()
        for piece in pieces:
            (display.text if piece[0] == "t" else display.reasoning)(piece[2:])
        display.end()
        captured = capsys.readouterr()
        assert captured.out == out
        assert captured.err == (err if on_terminal else "")


def test_silent_prints_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Output, "notes_on_terminal", property(lambda self: True))
    display = AnswerDisplay(silent=True)
    display.reasoning("hm")
    display.text("Hello")
    display.end()
    assert capsys.readouterr() == ("", "")
