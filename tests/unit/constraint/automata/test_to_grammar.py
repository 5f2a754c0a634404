"""Automata and sets of words as rules."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint import ast, charset
from jan_serve.constraint.automata.dfa import Dfa, begins_with_any, from_words, of_length
from jan_serve.constraint.automata.to_grammar import dfa_to_expr, other_words_expr, words_expr
from jan_serve.constraint.charset import CharSet
from jan_serve.constraint.limits import budget
from jan_serve.constraint.regex.language import full_regex, regex_dfa
from jan_serve.constraint.rules import RuleBuilder, prune
from jan_serve.constraint.text_form import JsonText, PlainText
from tests.unit.constraint.matching import texts
from tests.unit.constraint.recognizer import Recognizer

STATES = 5


def _dfa(rows: list[tuple[int, ...]], accepting: frozenset[int]) -> Dfa:
    return Dfa((0, ord("a"), ord("b"), ord("c")), (0, 1, 2, 0), tuple(rows), accepting)


DFAS = st.builds(
    _dfa,
    st.lists(st.tuples(*(st.integers(0, STATES - 1) for _ in range(3))), min_size=STATES, max_size=STATES),
    st.frozensets(st.integers(0, STATES - 1)),
)


def written(dfa: Dfa) -> tuple[ast.Expr, RuleBuilder]:
    rules = RuleBuilder()
    expr = dfa_to_expr(dfa, PlainText(), rules, "state")
    rules.fill("root", expr)
    return expr, rules


@given(DFAS)
def test_the_words_stay(dfa: Dfa) -> None:
    expr, rules = written(dfa)
    if expr == ast.NEVER:
        assert not any(dfa.matches(text) for text in texts("abc", STATES))
        return
    recognizer = Recognizer(ast.Grammar(rules.rules))
    for text in texts("abc", 6):
        assert recognizer.matches(text) is dfa.matches(text), text


def _first(expr: ast.Expr, rules: dict[str, ast.Expr]) -> list[CharSet]:
    """The characters that each way into an expression begins with."""
    if isinstance(expr, ast.CharClass):
        return [expr.chars]
    if isinstance(expr, ast.Literal):
        return [charset.of_chars(expr.text[0])]
    if isinstance(expr, ast.RuleRef):
        return _first(rules[expr.name], rules)
    if isinstance(expr, ast.Choice):
        return [way for item in expr.items for way in _first(item, rules)]
    if isinstance(expr, ast.Repeat):
        return _first(expr.item, rules)
    assert isinstance(expr, ast.Sequence)
    ways: list[CharSet] = []
    for item in expr.items:
        ways += _first(item, rules)
        if not (isinstance(item, ast.Repeat) and item.low == 0):
            break
    return ways


@given(DFAS)
def test_one_alternative_applies_at_every_character(dfa: Dfa) -> None:
    expr, rules = written(dfa)
    todo = [expr, *rules.rules.values()]
    while todo:
        part = todo.pop()
        ways = _first(part, rules.rules)
        assert charset.size(charset.union(*ways)) == sum(charset.size(way) for way in ways)
        todo += part.items if isinstance(part, ast.Sequence | ast.Choice) else ()


@given(*(st.integers(0, 4) for _ in range(4)), st.sampled_from(["", "c?", "(b|)", "a{0,2}", "(ca{0,3})?"]))
def test_counted_words_stay(first: int, second: int, third: int, fourth: int, then: str) -> None:
    dfa = regex_dfa(
        full_regex(f"(a{{0,{first}}}{then}|b[ab]{{0,{second}}}|c{{{third}}}a{{0,{fourth}}}){then}")
    )
    recognizer = Recognizer(ast.Grammar(written(dfa)[1].rules))
    for text in texts("abc", 6):
        assert recognizer.matches(text) is dfa.matches(text), text


def test_a_loop_is_a_star() -> None:
    expr, rules = written(regex_dfa(full_regex("a*b")))
    assert expr == ast.Sequence((ast.Repeat(ast.Literal("a"), 0, None), ast.Literal("b")))
    assert list(rules.rules) == ["root"]


def test_no_word_is_never() -> None:
    assert dfa_to_expr(from_words([]), PlainText(), RuleBuilder(), "none") == ast.NEVER


def test_every_word_ends_with_the_tail() -> None:
    rules = RuleBuilder()
    expr = dfa_to_expr(from_words(["", "ab", "a\n"]), JsonText(rules), rules, "word")
    recognizer = Recognizer(rules.grammar(expr))
    assert [recognizer.matches(text) for text in ('"', 'ab"', 'a\\n"', 'a"', "ab", 'a\n"')] == [
        *[True] * 3,
        *[False] * 3,
    ]


@pytest.mark.parametrize(
    ("pattern", "chars", "expected"),
    [
        (".*ok.*", charset.ANY, True),
        (".*", charset.ANY, True),
        ("a.*", charset.ANY, False),
        ("a.*", (), True),
        ("[^a]*", ((98, 100),), True),
        ("[^a]*", ((97, 97),), False),
        ("b*a", ((98, 98),), True),
        ("b{3}", ((98, 98),), False),
    ],
)
def test_whether_any_text_is_the_beginning_of_a_word(pattern: str, chars: CharSet, expected: bool) -> None:
    dfa = regex_dfa(full_regex(pattern.replace(".", "[\\s\\S]")))
    assert begins_with_any(dfa, chars) is expected


def test_no_more_states_are_examined_than_an_answer_takes() -> None:
    dfa = from_words(["a" * 1000])
    dfa.live_states()  # found once for all questions
    with budget(10):
        assert not begins_with_any(dfa, charset.of_chars("b"))


WORDS = st.lists(st.text("ab", max_size=4), max_size=20, unique=True)
LANGUAGES = {pattern: regex_dfa(full_regex(pattern)) for pattern in (".*", "a*b?", "(ab|b)+", "a{1,3}")}


def _grammar(expr: ast.Expr, rules: RuleBuilder) -> ast.Grammar | None:
    """With the rules that their writer calls complete trusted."""
    return prune(rules.grammar(expr), rules.complete)


@given(WORDS)
def test_words(words: list[str]) -> None:
    rules = RuleBuilder()
    grammar = _grammar(words_expr(tuple(words), PlainText(), rules, "word"), rules)
    found = {text for text in texts("ab", 5) if grammar is not None and Recognizer(grammar).matches(text)}
    assert found == set(words)


@given(WORDS.filter(bool), st.sampled_from(sorted(LANGUAGES)))
def test_other_words(words: list[str], pattern: str) -> None:
    language, rules = LANGUAGES[pattern], RuleBuilder()
    expr = other_words_expr(tuple(words), language, PlainText(), rules, "name")
    grammar = _grammar(expr, rules)
    recognizer = None if grammar is None else Recognizer(grammar)
    for text in texts("abc", 5):
        expected = language.matches(text) and text not in words
        assert (recognizer is not None and recognizer.matches(text)) is expected, text


@pytest.mark.parametrize("word", ["x" * 500, "a", ""])
def test_other_words_of_any_length(word: str) -> None:
    rules = RuleBuilder()
    anything: Dfa = of_length(0, None)
    grammar = _grammar(other_words_expr((word,), anything, JsonText(rules), rules, "name"), rules)
    assert grammar is not None
    recognizer = Recognizer(grammar)
    assert not recognizer.matches(f'{word}"')
    for other in (f"{word}x", f"y{word}", word[:-1] + "é", f"{word}\n"):
        assert recognizer.matches(json.dumps(other)[1:]) is (other != word)
