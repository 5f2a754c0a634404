"""Formats, and strings with length bounds that no automaton can count."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from jan_serve.constraint.automata.dfa import Dfa
from jan_serve.constraint.json_schema.scalars import strings
from jan_serve.constraint.json_schema.scalars.formats import SHORTEST, format_regex
from jan_serve.constraint.regex.language import regex_dfa
from jan_serve.core.constraint import Whitespace
from jan_serve.errors import GrammarTooComplex
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.recognizer import Recognizer, matches
from tests.unit.constraint.sampling import Sampler

VALID = (
    *("", "a b"),
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


FORMATS = ("uri", "uri-reference", "iri", "iri-reference")


def schema_of(high: int, low: int = 1, form: str = "uri") -> dict[str, Any]:
    return {"type": "string", "format": form, "minLength": low, "maxLength": high}


@pytest.mark.parametrize("high", [SHORTEST, 255, 999, 1_000, 2_083])
@pytest.mark.parametrize("form", FORMATS)
def test_every_text_is_a_uri_of_that_length(high: int, form: str) -> None:
    sampler, random = Sampler(grammar_alone(schema_of(high, 4, form))), Random(high)
    for _ in range(60):
        text = json.loads(sampler.text(random))
        assert 4 <= len(text) <= high
        assert strings.contains(strings.Format(form), text), text


@pytest.mark.parametrize("high", [SHORTEST, 255, 1_000])
def test_the_longest_text_is_within_the_bound(high: int) -> None:
    recognizer = Recognizer(grammar_alone(schema_of(high)))
    longest = 0
    for escape in ("p", "%20"):
        taken = '"'
        for mark, unit in (("abcdefghij://", "h"), (":12345/", escape), ("?", escape), ("#", "f")):
            taken += mark
            assert _begins(recognizer, taken), taken
            while _begins(recognizer, taken + unit):
                taken += unit
        longest = max(longest, len(taken) - 1)
    assert high * 19 // 20 <= longest <= high


def _begins(recognizer: Recognizer, text: str) -> bool:
    at = recognizer.leaves_at(text)
    return at is None or at == len(text)


@pytest.mark.parametrize(
    ("text", "high", "valid"),
    [
        ("https://example.com/a/b?c=d#e", 255, True),
        ("https://example.com:8080/%20", 2_083, True),
        ("mailto:someone@example.com", 100, True),
        ("file:///etc/hosts", 2_083, True),
        ("https://example.com/" + "a" * 300, 2_083, True),
        ("https://example.com/" + "a" * 300, 100, False),
        ("no scheme", 2_083, False),
        ("http://a b", 2_083, False),
        ("x:", 2_083, False),
    ],
)
def test_usual_uris(text: str, high: int, valid: bool) -> None:
    grammar = grammar_alone(schema_of(high), whitespace=Whitespace.COMPACT)
    assert matches(grammar, json.dumps(text)) == valid


def test_beside_others_as_pydantic_writes_it() -> None:
    schema = {
        "type": "object",
        "properties": {"url": {"anyOf": [schema_of(2_083), {"type": "null"}], "default": None}},
    }
    grammar = grammar_alone(schema)
    assert matches(grammar, '{"url": "https://a.org/"}') and matches(grammar, '{"url": null}')


@pytest.mark.parametrize("schema", [schema_of(255, 20), {"not": schema_of(255), "type": "string"}])
def test_what_is_not_of_that_form_is_refused_as_before(schema: dict[str, Any]) -> None:
    with pytest.raises(GrammarTooComplex):
        grammar_alone(schema)
