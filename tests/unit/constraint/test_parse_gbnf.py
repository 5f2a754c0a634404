"""GBNF text: what is read, and what is refused and where."""

from __future__ import annotations

import time

import pytest

from jan_serve.constraint.lark.print_lark import print_lark
from jan_serve.constraint.parse_gbnf import parse_gbnf
from jan_serve.constraint.print_gbnf import print_gbnf
from jan_serve.errors import GrammarTooComplex, InvalidGrammar
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.unit.constraint.recognizer import Recognizer

ACCEPTED = {
    "alternatives over lines": ('root ::= "a" |\n  "b" # comment\n\n', ["a", "b"], ["", "ab"]),
    "groups over lines": ('root ::= (\n  "a"\n  other\n)\nother ::= [0-9]+\n', ["a1"], ["a", "1"]),
    "classes": ("root ::= [^a-c\\]\\\\] [-x] [a-]", ["d-a", "]x-"][:1], ["a-a", "]x-", "dya"]),
    "escapes": ('root ::= "\\x41\\u00e9\\U0001F600\\t\\"\\\\"', ['Aé😀\t"\\'], ["A"]),
    "any character": ("root ::= . .", ["a\n", "é😀"], ["a", "abc"]),
    "repetitions": ('root ::= "ab"{2} [x]{1,} "y"{0,2}', ["ababx", "ababxxyy"], ["abx", "abab", "ababxyyy"]),
    "empty strings": ('root ::= "" "a" | ""', ["a", ""], ["aa"]),
    "recursion": ('root ::= "(" root ")" | "x"', ["((x))"], ["((x)", ""]),
    "nullable repetition": (
        'root ::= ("a"? "b"?){0,3} "!"',
        ["!", "ababab!", "aaa!", "bb!"],
        ["aaaa!", "ab"],
    ),
    "many words": (
        "root ::= " + " | ".join(f'"w{n}"' for n in range(300)) + ' | "w" "!"',
        ["w0", "w299", "w!"],
        ["w300", "w", "w01"],
    ),
    "unused unproductive rule": ('root ::= "a" | loop\nloop ::= "b" loop', ["a"], ["b"]),
    "carriage returns": ('root ::= "a" b\r\nb ::= "c"\r\n', ["ac"], ["a"]),
}
REFUSED = {
    "empty": ("", None, "no rule is named root"),
    "no root": ('start ::= "a"', None, "no rule is named root"),
    "a name alone": ("nofile\n", 1, "after 'nofile'; no grammar has that name"),
    "not gbnf": ("this is not gbnf (((", 1, "expected ::="),
    "another language": ("%llguidance {}", 1, "expected a rule name"),
    "undefined rule": ('root ::= "a"\n\nx ::= y', 3, "'y' is not defined"),
    "left recursion": ('root ::= a\na ::= root "x" | "y"', 1, "starts with itself"),
    "hidden left recursion": ('root ::= "x"? root "y" | "z"', 1, "starts with itself"),
    "bounds out of order": ('root ::= "a"\nb ::= "a"{5,0}', 2, "at least 5 and at most 0"),
    "nothing to repeat": ("root ::= * a", 1, "nothing to repeat"),
    "two repetitions": ('root ::= "a"*+', 1, "two repetitions"),
    "huge count": ('root ::= "a"{1000000000}', 1, "above"),
    "open string": ('root ::= "a', 1, "not closed"),
    "open class": ("root ::= [a", 1, "not closed"),
    "open group": ('root ::= ("a"', 1, "not closed"),
    "surplus parenthesis": ('root ::= "a")', 1, "unexpected ')'"),
    "empty class": ("root ::= []", 1, "matches nothing"),
    "class out of order": ("root ::= [z-a]", 1, "out of order"),
    "short escape": ('root ::= "\\u12"', 1, "needs 4 hex digits"),
    "escape of no digits": ('root ::= "\\xzz"', 1, "needs 2 hex digits"),
    "escape above Unicode": ("root ::= [\\U00110000]", 1, "not a character"),
    "count without a number": ('root ::= "a"{,3}', 1, "a repetition is {n}, {n,} or {n,m}"),
    "count not closed": ('root ::= "a"{2', 1, "a repetition is {n}, {n,} or {n,m}"),
    "second line of a group": ('root ::= (\n"a"\n"\\q")', 3, "unknown escape"),
    "unknown escape": ('root ::= "\\q"', 1, "unknown escape"),
    "token reference": ("root ::= <[42]>", 1, "token references"),
    "no finite text": ('root ::= "a" root', 1, "no finite text"),
    "deep nesting": ("root ::= " + "(" * 60000 + '"a"' + ")" * 60000, 1, "nested deeper"),
    "long chain": (
        "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(5000)) + 'r5000 ::= "a"',
        None,
        "chain",
    ),
    "too large": ('root ::= "' + "a" * 1_100_000 + '"', None, "larger than"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_text_is_read_and_printed_again(name: str) -> None:
    text, accept, reject = ACCEPTED[name]
    grammar = parse_gbnf(text)
    again = parse_gbnf(print_gbnf(grammar))
    oracle = LlguidanceOracle()
    matcher = oracle.compile(print_lark(grammar))
    for expected, samples in ((True, accept), (False, reject)):
        for sample in samples:
            assert Recognizer(grammar).matches(sample) is expected, sample
            assert Recognizer(again).matches(sample) is expected, sample
            assert oracle.accepts(matcher, sample) is expected, sample


@pytest.mark.parametrize("name", REFUSED)
def test_refusal_names_line_and_reason(name: str) -> None:
    text, line, reason = REFUSED[name]
    started = time.process_time()
    with pytest.raises(InvalidGrammar) as caught:
        parse_gbnf(text)
    assert time.process_time() - started < 1
    assert reason in caught.value.reason
    assert line is None or caught.value.line == line


def test_expensive_rewriting_is_refused_in_bounded_time() -> None:
    started = time.process_time()
    with pytest.raises(GrammarTooComplex):
        parse_gbnf("root ::= (" + '"a"? ' * 3000 + "){2,5}")
    assert time.process_time() - started < 5
