"""GBNF becomes the same language in the AST, or is refused with its line, and is fit for executors."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given

from jan_serve.constraint.ast import (
    Choice,
    Expr,
    Grammar,
    Literal,
    Repeat,
    RuleRef,
    Sequence,
    Terminal,
    choice,
    optional,
    repeat,
    sequence,
)
from jan_serve.constraint.lark.print_lark import print_lark
from jan_serve.constraint.limits import MAX_LEFT_CHAIN
from jan_serve.constraint.parse_gbnf import check_rules, is_nullable, normalise, nullable_rules, parse_gbnf
from jan_serve.constraint.print_gbnf import print_gbnf
from jan_serve.errors import GrammarTooComplex, InvalidGrammar
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.unit.constraint.matching import GRAMMARS, belongs, texts
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
    "a count and many blanks": ('root ::= "a"{1,' + " " * 100_000, 1, "a repetition is {n}, {n,} or {n,m}"),
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


@pytest.mark.parametrize("body", ['"x"', '"x"?', '"x" | "y" all'])
def test_a_rule_with_thousands_of_references_takes_little_time(body: str) -> None:
    names = [f"a{number}" for number in range(9000)]
    rules = [f"{name} ::= {body}" for name in reversed(names)]
    started = time.process_time()
    grammar = parse_gbnf("\n".join(['root ::= "b" all', f"all ::= {' '.join(names)}", *rules]))
    assert time.process_time() - started < 3
    assert len(grammar.rules) == 9002


@pytest.mark.parametrize("blank", [" ", "#\n", "\t#\n"])
def test_blanks_take_little_memory(blank: str) -> None:
    text = 'root ::= "a" (' + blank * (500_000 // len(blank)) + '"b")'
    tracemalloc.start()
    try:
        parse_gbnf(text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30_000_000


A, B = Literal("a"), Literal("b")


def _gbnf(grammar: Grammar) -> Grammar:
    """The grammar as GBNF can say it, without tokens."""

    def plain(expr: Expr) -> Expr:
        if isinstance(expr, Terminal):
            return plain(expr.item)
        if isinstance(expr, Sequence | Choice):
            return type(expr)(tuple(plain(item) for item in expr.items))
        return Repeat(plain(expr.item), expr.low, expr.high) if isinstance(expr, Repeat) else expr

    return Grammar({name: plain(expr) for name, expr in grammar.rules.items()})


@given(GRAMMARS.map(_gbnf))
def test_the_texts_stay(grammar: Grammar) -> None:
    rewritten = normalise(grammar)
    for text in texts("ab", 5):
        assert belongs(rewritten, text) is belongs(grammar, text), text


def test_many_words_become_a_trie() -> None:
    words = [f"a{first}{second}" for first in "abcdef" for second in "abcdef"]
    grammar = normalise(Grammar({"root": Choice((*(Literal(word) for word in words), RuleRef("b"))), "b": B}))
    assert isinstance(grammar.rules["root"], Choice)
    assert len(grammar.rules["root"].items) == 2
    assert all(belongs(grammar, word) for word in [*words, "b"])
    assert not any(belongs(grammar, word) for word in ("a", "aa", "aag", "", "aaaa"))


LETTER_A, SELF = Literal("a"), RuleRef("root")


def check(rules: dict[str, Expr]) -> None:
    check_rules(rules, {name: line for line, name in enumerate(rules, 1)})


@given(GRAMMARS)
def test_nullable_rules_are_those_with_the_empty_text(grammar: Grammar) -> None:
    nullable = nullable_rules(grammar.rules)
    for name, expr in grammar.rules.items():
        empty = belongs(Grammar(grammar.rules, name), "")
        assert (name in nullable) is empty
        assert is_nullable(expr, nullable) is empty


UNFIT: dict[str, tuple[dict[str, Expr], int, str]] = {
    "not defined": ({"root": LETTER_A, "b": sequence([LETTER_A, RuleRef("c")])}, 2, "'c' is not defined"),
    "itself": ({"root": choice([LETTER_A, sequence([SELF, LETTER_A])])}, 1, "'root' starts with itself"),
    "itself after a repetition": (
        {"root": sequence([repeat(LETTER_A, 0, None), SELF])},
        1,
        "starts with itself",
    ),
    "itself in a token": (
        {"root": choice([LETTER_A, Terminal(sequence([SELF, LETTER_A]))])},
        1,
        "starts with itself",
    ),
    "itself repeated": ({"root": repeat(SELF, 2, 3)}, 1, "starts with itself"),
    "through a rule that may be empty": (
        {
            "root": sequence([RuleRef("x"), RuleRef("y")]),
            "x": optional(LETTER_A),
            "y": choice([LETTER_A, SELF]),
        },
        1,
        "starts with itself",
    ),
    "two rules in turn, off the root": (
        {"root": LETTER_A, "x": sequence([RuleRef("y"), LETTER_A]), "y": sequence([RuleRef("x"), LETTER_A])},
        2,
        "'x' starts with itself",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_refusal_names_rule_and_line(name: str) -> None:
    rules, line, reason = UNFIT[name]
    with pytest.raises(InvalidGrammar) as caught:
        check(rules)
    assert caught.value.line == line
    assert reason in caught.value.reason


@pytest.mark.parametrize(("rules", "fine"), [(MAX_LEFT_CHAIN, True), (MAX_LEFT_CHAIN + 1, False)])
def test_a_chain_of_first_rules_is_limited(rules: int, fine: bool) -> None:
    chain: dict[str, Expr] = {f"r{n}": RuleRef(f"r{n + 1}") for n in range(rules - 1)}
    chain[f"r{rules - 1}"] = LETTER_A
    if fine:
        check(chain)
        return
    with pytest.raises(InvalidGrammar, match=f"'r0' starts a chain of more than {MAX_LEFT_CHAIN}"):
        check(chain)
