"""The format `regex`: expressions of ECMA-262 with the flag u, as Node judges them."""

from __future__ import annotations

import json

import pytest

from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.json_schema.scalars.formats import format_regex
from jan_serve.constraint.regex.language import regex_dfa
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.recognizer import matches

VALID = (
    *(
        "",
        "a b",
    ),
    *r"""
    a a/b ^/x ^dist/ \/ a-b é 😀 , ^[a-z]+$ (a|b)* () (?:) (?=a)b (?!b)c (?<=a)b (?<!a)b (?<n>a)
    ^(?<year>\d{4})- ((a)b)+? a| | a{2}? [] [^] [-a] [a-] [--] [^-a] [a-z-] [\w-] [\b] [\-] [[] [!-~]
    [^^] \cA \cz \p{L} \P{Lu} \p{gc=Nd} [\p{L}\d] \x41 \u0041 \u{1F600} \u{0} \d\D\w\W\s\S \t\n\v\f\r
    \b.\B \^\$\\\.\*\+\?\(\)\[\]\{\}\| a{2,10} a{0,0} a{3,} a{10,100} x{1,9}y*z+?
""".split(),
)
INVALID = (
    *("(?<n a)",),
    *r"""
    ( ) [ ] { } a{ a{,3} a{2,1} a{10,2} a{21,12} * a** + ? (?) ^* $+ \b? (?=a)* (?!a){2} (?<=a)+ (?<1>a)
    (?<n>a)(?<n>b) (?i)a [z-a] [\d-x] [a-\d] [\w-a] [a [b-a-c] \ \- \_ \a \é \c \c1 \p \pL \p{Foo} \p{}
    \x4 \u004 \u{110000} \u{} \1 \k<n> (?P<n>a)
""".split(),
)


@pytest.fixture(scope="module")
def words() -> Dfa:
    return regex_dfa(format_regex("regex"))


@pytest.mark.parametrize("pattern", VALID)
def test_an_expression_of_ecma_262_is_accepted(words: Dfa, pattern: str) -> None:
    assert words.matches(pattern)


@pytest.mark.parametrize("pattern", INVALID)
def test_what_is_no_expression_of_ecma_262_is_refused(words: Dfa, pattern: str) -> None:
    assert not words.matches(pattern)


def test_paths_in_a_document_need_no_escapes() -> None:
    grammar = grammar_alone({"type": "string", "format": "regex"})
    assert all(matches(grammar, json.dumps(pattern)) for pattern in ("a/b", "^/api/v[0-9]+/", "(?=a)b"))
