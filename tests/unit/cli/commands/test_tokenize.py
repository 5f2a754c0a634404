"""tokenize against a server with fake engines, whose tokens are bytes."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Run


def test_tokens_of_a_text(ask: Run) -> None:
    answer = ask("tokenize", "alpha", "Hi é")
    assert answer.status == 0
    rows = [line.split(maxsplit=1) for line in answer.out.splitlines() if '"' in line]
    assert [row[1].strip() for row in rows] == ['"<s>"', '"H"', '"i"', '" "', '"\\xc3"', '"\\xa9"']
    assert answer.err == "6 tokens\n"


def test_tokens_in_json(ask: Run) -> None:
    answer = json.loads(ask("tokenize", "alpha", "é", "--json").out)
    assert (answer["model"], answer["count"]) == ("alpha", 3)
    assert answer["tokens"][1:] == [{"id": 0xC3, "bytes": [0xC3]}, {"id": 0xA9, "bytes": [0xA9]}]


def test_words_become_one_text(ask: Run) -> None:
    assert ask("tokenize", "--count", "alpha", "a", "b").out == "4\n"
    assert ask("tokenize", "--count", "alpha", stdin=b"a b").out == "4\n"
    assert json.loads(ask("tokenize", "--count", "--json", "alpha", "a b").out) == {
        "model": "alpha",
        "count": 4,
    }


@pytest.mark.parametrize("words", [("72", "105"), ("72,105",), ("[72, 105]",)])
def test_text_of_tokens(ask: Run, words: tuple[str, ...]) -> None:
    assert ask("tokenize", "--decode", "alpha", *words).out == "Hi\n"
    assert ask("tokenize", "--decode", "alpha", stdin=" ".join(words).encode()).out == "Hi\n"
    answer = json.loads(ask("tokenize", "--decode", "--json", "alpha", *words).out)
    assert answer == {"model": "alpha", "text": "Hi"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--decode", "alpha", "x"), "'x' is not a token id."),
        (("--decode", "alpha", "-1"), "No such option"),
        (("--decode", "alpha", "99999999"), "token 99999999 is outside"),
        (("--decode", "--count", "alpha", "1"), "exclude each other"),
        ((), "MODEL"),
    ],
)
def test_wrong_tokens(ask: Run, words: tuple[str, ...], message: str) -> None:
    answer = ask("tokenize", *words)
    assert (answer.status, answer.out) == (2, "")
    assert message in answer.err


def test_input_that_is_not_utf8(ask: Run) -> None:
    answer = ask("tokenize", "alpha", stdin=b"ab\xff")
    assert answer.status == 2
    assert "standard input is not UTF-8 text (byte 2)" in answer.err
