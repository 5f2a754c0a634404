"""embed against a server with fake engines."""

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
    monkeypatch.setattr("jan_serve.cli.commands.embed.on_terminal", lambda: True)
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
