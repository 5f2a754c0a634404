"""The format `regex`: expressions of ECMA-262 with the flag u, as Node judges them."""

from __future__ import annotations

import json
import random
import shutil
import subprocess

import pytest

from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.json_schema.scalars.formats import format_regex
from jan_serve.constraint.regex.language import regex_dfa
from tests.unit.constraint.json_schema.scalars.test_formats import INVALID, VALID

PIECES = (*VALID, *(piece for piece in INVALID if len(piece) < 4))


@pytest.fixture(scope="module")
def words() -> Dfa:
    return regex_dfa(format_regex("regex"))


def _walk(words: Dfa, draw: random.Random) -> str:
    """A word that a random walk finds."""
    live, sets, state, text = words.live_states(), words.symbol_sets(), 0, ""
    while state not in words.accepting or (len(text) < 60 and draw.random() < 0.93):
        steps = [(symbol, to) for symbol, to in enumerate(words.table[state]) if to in live]
        symbol, state = draw.choice(steps)
        low, high = draw.choice(sets[symbol])
        text += chr(draw.randint(low, min(high, low + 60)))
    return text


def _judged(patterns: list[str]) -> list[bool]:
    """Whether Node takes each of them for an expression."""
    script = (
        "console.log(JSON.stringify(JSON.parse(require('fs').readFileSync(0)).map("
        "p => { try { new RegExp(p, 'u'); return true } catch { return false } })))"
    )
    done = subprocess.run(
        ["node", "-e", script],
        input=json.dumps(patterns),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(shutil.which("node") is None, reason="Node judges")
def test_node_takes_the_table_and_each_drawn_word_alike(words: Dfa) -> None:
    assert _judged([*VALID, *INVALID]) == [True] * len(VALID) + [False] * len(INVALID)
    draw = random.Random(20261127)
    patterns = [_walk(words, draw) for _ in range(1_000)]
    patterns += ["".join(draw.choices(PIECES, k=draw.randint(2, 4))) for _ in range(3_000)]
    wrong = [
        pattern
        for pattern, valid in zip(patterns, _judged(patterns), strict=True)
        if words.matches(pattern) and not valid
    ]
    assert wrong == []
