"""`jan-serve watermark` against a server with fake engines, whose tokens are bytes."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path

import pytest

from jan_serve.text.watermark import green_tokens
from tests.support.fake_vocabulary import N_VOCAB
from tests.unit.cli.conftest import Run

LETTERS = [ord(letter) for letter in string.ascii_letters]


def marked(length: int) -> str:
    """Letters that are each green after the previous one."""
    rng = random.Random(3)
    tokens = [rng.choice(LETTERS)]
    while len(tokens) < length:
        green = green_tokens(N_VOCAB, tokens[-1])
        tokens.append(rng.choice([token for token in LETTERS if green[token]]))
    return bytes(tokens).decode()


def test_a_watermarked_text_is_detected(ask: Run, tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text(marked(101))
    answer = ask("watermark", str(file))
    assert (answer.status, answer.err) == (0, "")
    assert answer.out.split()[-4:-1] == ["100", "100", "10.00"]
    assert float(answer.out.split()[-1]) < 1e-20


def test_as_json_from_standard_input(ask: Run) -> None:
    answer = ask("watermark", "-", "--json", "--model", "beta-7b", stdin=marked(65).encode())
    found = json.loads(answer.out)
    assert (found["model"], found["scored"], found["green"], found["z"]) == ("beta-7b", 64, 64, 8.0)
    assert (found["gamma"], found["unique"]) == (0.5, False)


def test_pairs_can_be_counted_once(ask: Run) -> None:
    text = b"ab" * 40
    assert json.loads(ask("watermark", "-", "--json", stdin=text).out)["scored"] == 79
    assert json.loads(ask("watermark", "-", "--json", "--unique", stdin=text).out)["scored"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-",), "fewer than two tokens"),
        (("-", "--gamma", "1"), "gamma"),
        (("no/such/file",), "cannot read no/such/file"),
        (("-", "--model", "nonsense"), "nonsense"),
    ],
)
def test_texts_without_a_score_are_rejected(ask: Run, words: tuple[str, ...], message: str) -> None:
    answer = ask("watermark", *words, stdin=b"a")
    assert (answer.status, answer.out) == (2, "")
    assert message in answer.err
