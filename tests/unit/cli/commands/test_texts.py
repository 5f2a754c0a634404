"""Embeddings, scores and tokens of texts."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Run


def test_a_vector_a_line(ask: Run) -> None:
    answer = ask("embed", "alpha", "one", "two")
    assert (answer.status, answer.err) == (0, "")
    vectors = [[float(number) for number in line.split()] for line in answer.out.splitlines()]
    assert len(vectors) == 2
    assert sum(number * number for number in vectors[0]) == pytest.approx(1)


def test_vectors_in_json(ask: Run) -> None:
    answer = json.loads(ask("embed", "alpha", "--json", "--lines", stdin=b"one\n\ntwo\n").out)
    assert [item["text"] for item in answer["embeddings"]] == ["one", "two"]
    assert answer["tokens"] > 0
    short = json.loads(ask("embed", "alpha", "one", "--json", "--dimensions", "2").out)
    assert len(short["embeddings"][0]["embedding"]) == 2


def test_many_texts_go_in_batches(ask: Run) -> None:
    lines = "\n".join(f"line {number}" for number in range(300)).encode()
    assert len(ask("embed", "alpha", "--lines", stdin=lines).out.splitlines()) == 300


def test_vectors_on_a_terminal(ask: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.cli.commands.texts.on_terminal", lambda: True)
    answer = ask("embed", "alpha", "one", "a longer text " * 9)
    assert "~1" in answer.out and "~2" in answer.out
    assert "1.000" in answer.out
    assert "…" in answer.out
    assert "--json prints the whole vectors" in answer.err
    assert "~1" not in ask("embed", "alpha", "one").out


@pytest.mark.parametrize(
    ("words", "stdin", "message"),
    [
        (("alpha",), b"  \n", "There is no text to embed."),
        (("alpha", "--lines"), b"\n\n", "There is no text to embed."),
        (("alpha", "--lines", "x"), b"", "--lines reads standard input"),
        (("alpha", "x", "--dimensions", "0"), b"", "--dimensions"),
        (("alpha", "x", "--dimensions", "99999"), b"", "dimensions"),
    ],
)
def test_wrong_texts(ask: Run, words: tuple[str, ...], stdin: bytes, message: str) -> None:
    answer = ask("embed", *words, stdin=stdin)
    assert (answer.status, answer.out) == (2, "")
    assert message in answer.err


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
