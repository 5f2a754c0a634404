"""Executors of recent grammars are kept, and each request has its own."""

from __future__ import annotations

import pytest

from jan_serve.core.constraint import CompiledGrammar
from jan_serve.engine.constraint import grammar_factory
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.grammar_factory import MAX_DEPTH, MAX_LITERAL, GrammarFactory, check_lark
from jan_serve.errors import GrammarTooComplex, InvalidGrammar
from tests.unit.engine.small_vocab import LETTERS, SmallVocab, small_vocab


class Counted:
    """Counts the grammars that are compiled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.compiled: list[str] = []

        def make(tokenizer: object, lark: str, vocab: object) -> GrammarExecutor:
            self.compiled.append(lark)
            return GrammarExecutor(tokenizer, lark, small_vocab())

        monkeypatch.setattr(grammar_factory, "GrammarExecutor", make)
        monkeypatch.setattr(SmallVocab, "special", {}, raising=False)


def complete_factory() -> GrammarFactory:
    factory = GrammarFactory(small_vocab())
    while not factory.tables.complete:
        factory.tables.advance()
    return factory


def grammar(letter: str) -> CompiledGrammar:
    return CompiledGrammar(lark=f'start: "{letter}" "{letter}"\n')


def test_an_equal_grammar_is_compiled_once_and_its_states_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    factory = complete_factory()
    token = LETTERS.index("a")
    first = factory.create(grammar("a"))
    first.accept(token)
    first.accept(token)
    second = factory.create(grammar("a"))
    assert len(counted.compiled) == 1
    assert (first.is_complete, second.is_complete, second.allows(token)) == (True, False, True)


def test_the_least_recently_used_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    monkeypatch.setattr(grammar_factory, "_MAX_KEPT", 2)
    factory = complete_factory()
    for letter in "abacab":
        factory.create(grammar(letter))
    assert [lark[8] for lark in counted.compiled] == ["a", "b", "c", "b"]


def test_a_refusal_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    factory = complete_factory()
    for _ in range(2):
        with pytest.raises(InvalidGrammar):
            factory.create(CompiledGrammar(lark="start: missing\n"))
    assert len(counted.compiled) == 2


def test_what_was_made_before_the_tables_were_complete_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    factory = GrammarFactory(small_vocab())
    for _ in range(2):
        factory.create(grammar("a"))
    assert len(counted.compiled) == 2


def chain(length: int, body: str = '"a" {next}') -> str:
    lines = [f"r_{i}: {body.replace('{next}', f'r_{i + 1}')}" for i in range(length)]
    return "\n".join(["start: r_0", *lines, f'r_{length}: "b"']) + "\n"


WRAPPED = "(" * 12 + '"a" {next}' + ' | "c")?' * 12

DEEP = {
    "a chain": chain(MAX_DEPTH),
    "a chain of optional rules": chain(3000, '("a" {next})?'),
    "a cycle": chain(3000).replace('r_3000: "b"', 'r_3000: "b" r_0?'),
    "terminals": chain(3000).replace("r_", "T_"),
    "groups along a chain": chain(400, WRAPPED),
    "groups in one rule": "start: " + "(" * MAX_DEPTH + '"a"' + ")" * MAX_DEPTH + "\n",
    "a terminal with a priority": chain(3000).replace("r_1500:", "r_1500.5 :"),
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_what_fills_a_stack_is_refused(text: str) -> None:
    with pytest.raises(GrammarTooComplex, match=str(MAX_DEPTH)):
        check_lark(text)


def test_a_text_that_is_forced_for_seconds_is_refused() -> None:
    check_lark(f'start: "{"a" * (MAX_LITERAL - 2)}"\n')
    with pytest.raises(GrammarTooComplex, match=str(MAX_LITERAL)):
        check_lark(f'start: T\nT: "b" "{"a" * MAX_LITERAL}"\n')
