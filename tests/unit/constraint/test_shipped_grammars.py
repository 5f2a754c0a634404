"""The named grammars: every accept sample belongs, no reject sample does, by every executor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jan_serve.constraint.lark.print_lark import print_lark
from jan_serve.constraint.parse_gbnf import parse_gbnf
from jan_serve.constraint.print_gbnf import print_gbnf
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.unit.constraint.recognizer import Recognizer

FOLDER = Path(__file__).resolve().parents[3] / "grammars"
NAMES = sorted(file.stem for file in FOLDER.glob("*.gbnf"))


def samples(name: str, kind: str) -> list[str]:
    """One JSON string on each line."""
    return [json.loads(line) for line in (FOLDER / f"{name}.{kind}").read_text(encoding="utf-8").splitlines()]


def test_every_named_grammar_has_samples() -> None:
    assert {
        "json",
        "json-array",
        "list",
        "arithmetic",
        "iso-date",
        "uuid",
        "email",
        "csv",
        "sql-select",
    } <= set(NAMES)
    assert {file.stem for file in FOLDER.iterdir()} == set(NAMES)
    for name in NAMES:
        assert len(samples(name, "accept")) >= 2
        assert len(samples(name, "reject")) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_samples(name: str) -> None:
    grammar = parse_gbnf((FOLDER / f"{name}.gbnf").read_text(encoding="utf-8"))
    printed = parse_gbnf(print_gbnf(grammar))
    oracle = LlguidanceOracle()
    matcher = oracle.compile(print_lark(grammar))
    for expected, kind in ((True, "accept"), (False, "reject")):
        for sample in samples(name, kind):
            assert Recognizer(grammar).matches(sample) is expected, sample
            assert Recognizer(printed).matches(sample) is expected, sample
            assert oracle.accepts(matcher, sample) is expected, sample
