"""Text and thoughts as they come: which stream they go to, and where lines end."""

from __future__ import annotations

import pytest

from jan_serve.cli.chat.answer import Answer
from jan_serve.cli.chat.show_answer import AnswerDisplay
from jan_serve.cli.output import Output

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
def test_where_it_goes(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    pieces: list[str],
    out: str,
    err: str,
) -> None:
    for watched in (True, False):
        monkeypatch.setattr(Output, "is_watched", property(lambda self, value=watched: value))
        display = AnswerDisplay(Output())
        for piece in pieces:
            (display.text if piece[0] == "t" else display.thought)(piece[2:])
        display.end()
        captured = capsys.readouterr()
        assert captured.out == out
        assert captured.err == (err if watched else "")


def test_silence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Output, "is_watched", property(lambda self: True))
    display = AnswerDisplay(Output(), silent=True)
    display.thought("hm")
    display.text("Hello")
    display.end()
    assert capsys.readouterr() == ("", "")


def test_statistics() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    timings = {"prompt_per_second": 100.04, "predicted_per_second": 0.0}
    assert Answer(usage=usage, timings=timings).statistics() == (
        "9 tokens of prompt (4 cached), 3 of answer, read at 100.0 tokens/s"
    )
    assert "did not reach its end" in Answer().statistics()
