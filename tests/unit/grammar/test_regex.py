"""Regular expressions against Python's `re`, and what ECMA-262 says differently."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jan_serve.errors import GrammarTooComplex, UnsupportedPattern
from jan_serve.grammar import Recognizer, print_lark, regex_to_grammar
from jan_serve.grammar.json_schema.strings import Pattern, contains
from jan_serve.grammar.regex.language import regex_dfa, search_regex
from tests.conformance.llguidance_oracle import LlguidanceOracle

ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", "\\w", "\\d", "\\s", "\\W", "-", "\\.", "\\n"])
REGEXES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds(
            "({}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?"])
        ),
        st.builds("({})".format, inner),
        st.builds("^{}".format, inner),
        st.builds("{}$".format, inner),
        st.builds("\\b{}".format, inner),
    ),
    max_leaves=8,
)
LOOKAHEADS = st.builds(
    "{}({}{}){}".format,
    st.sampled_from(["", "^", "a*", "."]),
    st.sampled_from(["?=", "?!"]),
    REGEXES,
    REGEXES,
)
TEXTS = st.lists(st.text("abc1-. \n_é", max_size=6), min_size=4, max_size=8)


def _python(pattern: str) -> re.Pattern[str]:
    """ECMA's `$` is Python's `\\Z`; its classes are ASCII."""
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern), re.ASCII)


@settings(max_examples=400)
@given(REGEXES, TEXTS)
def test_search_agrees_with_python(pattern: str, texts: list[str]) -> None:
    dfa, expected = regex_dfa(search_regex(pattern)), _python(pattern)
    for text in texts:
        assert dfa.matches(text) == bool(expected.search(text)), (pattern, text)


@settings(max_examples=200)
@given(LOOKAHEADS, TEXTS)
def test_lookaheads_agree_with_python(pattern: str, texts: list[str]) -> None:
    try:
        dfa = regex_dfa(search_regex(pattern))
    except UnsupportedPattern:
        return
    expected = _python(pattern)
    for text in texts:
        assert dfa.matches(text) == bool(expected.search(text)), (pattern, text)


@settings(max_examples=150)
@given(REGEXES, TEXTS)
def test_grammar_matches_the_whole_text(pattern: str, texts: list[str]) -> None:
    try:
        grammar = regex_to_grammar(pattern)
    except UnsupportedPattern as error:
        assert error.reason == "no text matches the expression"
        return
    recognizer, oracle = Recognizer(grammar), LlguidanceOracle()
    matcher = oracle.compile(print_lark(grammar))
    expected = _python(pattern)
    for text in texts:
        wanted = bool(expected.fullmatch(text))
        assert recognizer.matches(text) == wanted, (pattern, text)
        assert oracle.accepts(matcher, text) == wanted, (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("^\\d$", ["7"], ["٣", "a"]),
        ("^\\w$", ["_"], ["é"]),
        ("^\\s$", ["\ufeff", "\u2003", "\n"], ["\x1c", "x"]),
        ("^.$", ["é", "😀"], ["\u2028", "\n"]),
        ("^\\p{Lu}+$", ["ÀB"], ["a", "1"]),
        ("^\\u{1F600}$", ["😀"], ["x"]),
        ("^\\ud83d\\ude00$", ["😀"], ["x"]),
        ("^[\\w-.]$", ["-", ".", "a"], ["/"]),
        ("^a{,2}$", ["a{,2}"], ["a", "aa"]),
        ("^(?!pattern$).*$", ["patter", "patterns"], ["pattern"]),
        ("^(?=.*\\d)(?=.*[a-z]).{3,}$", ["a1b"], ["abc", "a1"]),
        ("^((?:a|b)+)$", ["abba"], [""]),
        ("^[^]$", ["\n", "x"], ["", "xx"]),
        ("^(?<year>\\d{4})$", ["2024"], ["24"]),
        ("^\\cJ\\0\\x41$", ["\n\0A"], ["A"]),
    ],
)
def test_ecma_meaning(pattern: str, yes: list[str], no: list[str]) -> None:
    for text in yes:
        assert contains(Pattern(pattern), text), text
    for text in no:
        assert not contains(Pattern(pattern), text), text


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("a(b", 1),
        ("a)", 1),
        ("^+[a-z]$", 1),
        ("a**", 2),
        ("[z-a]", 1),
        ("[a", 0),
        ("a{2,1}", 1),
        ("(a)\\1", 3),
        ("x(?<=x)a", 1),
        ("(?i)a", 0),
        ("(?P<n>a)", 0),
        ("a\\", 1),
        ("\\p{Nope}", 0),
        ("\\Aa", 0),
        ("((?!a)b)*c", 1),
        ("(" * 500, 101),
    ],
)
def test_refused_pattern_names_its_position(pattern: str, position: int) -> None:
    with pytest.raises(UnsupportedPattern) as caught:
        search_regex(pattern)
    assert caught.value.position == position
    assert caught.value.reason


@pytest.mark.parametrize(
    "pattern", [f"^{'a?' * 3900}$", "a*" * 6000, "".join(f"[^{chr(n)}]?" for n in range(0x4E00, 0x5400))]
)
def test_expensive_pattern_is_refused_in_bounded_time(pattern: str) -> None:
    started = time.process_time()
    with pytest.raises(GrammarTooComplex):
        regex_to_grammar(pattern)
    assert time.process_time() - started < 5


@pytest.mark.parametrize("pattern", ["(ab?){1900}", "(a|b)" * 2000])
def test_long_pattern_takes_bounded_time(pattern: str) -> None:
    started = time.process_time()
    print_lark(regex_to_grammar(pattern))
    assert time.process_time() - started < 5
