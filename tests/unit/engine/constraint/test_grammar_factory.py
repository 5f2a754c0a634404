"""Executors of recent grammars are kept, and each request has its own."""

from __future__ import annotations

import pytest

from jan_serve.core.constraint import CompiledGrammar
from jan_serve.engine.constraint import grammar_factory
from jan_serve.engine.constraint.grammar_executor import GrammarExecutor
from jan_serve.engine.constraint.grammar_factory import GrammarFactory
from jan_serve.errors import InvalidGrammar
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
    return CompiledGrammar(gbnf="", lark=f'start: "{letter}" "{letter}"\n')


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


def test_a_grammar_above_the_limit_is_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    monkeypatch.setattr(grammar_factory, "_MAX_KEPT_CHARACTERS", 5)
    factory = complete_factory()
    for letter in "aabba":
        factory.create(grammar(letter))
    assert [lark[8] for lark in counted.compiled] == ["a", "b", "a"]


def test_a_refusal_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    factory = complete_factory()
    for _ in range(2):
        with pytest.raises(InvalidGrammar):
            factory.create(CompiledGrammar(gbnf="", lark="start: missing\n"))
    assert len(counted.compiled) == 2


def test_what_was_made_before_the_tables_were_complete_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    factory = GrammarFactory(small_vocab())
    for _ in range(2):
        factory.create(grammar("a"))
    assert len(counted.compiled) == 2
