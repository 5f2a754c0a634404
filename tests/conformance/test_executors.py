"""Both executors read our prints alike, and llama.cpp survives what users may send. No reference folder is needed."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from jan_serve.constraint.ast import Grammar
from jan_serve.constraint.json_schema.scalars.strings import Pattern, contains
from jan_serve.constraint.lark.print_lark import print_lark
from jan_serve.constraint.layout import COMPACT, SPACED, with_optional_spaces
from jan_serve.constraint.parse_gbnf import parse_gbnf
from jan_serve.constraint.print_gbnf import print_gbnf
from jan_serve.constraint.regex.language import translate as regex_to_grammar
from models.recipe import fixtures
from tests.conformance.llama_cpp_oracle import LlamaCppOracle
from tests.conformance.llguidance_oracle import LlguidanceOracle
from tests.conformance.scoring import PASS, score
from tests.conformance.suites import Case
from tests.unit.constraint.grammars import grammar_alone
from tests.unit.constraint.json_schema.test_translate import CASES
from tests.unit.constraint.recognizer import Recognizer
from tests.unit.constraint.sampling import Sampler
from tests.unit.constraint.test_shipped_grammars import FOLDER, NAMES

pytestmark = pytest.mark.integration

PATTERNS = (
    "(ab|cd)+x?",
    "[a-z]{3,500}",
    "a*b?c{2}",
    "(a|b)*abb",
    "\\p{L}+( \\p{L}+)*",
    "(?!foo)[a-z]+",
    "([0-9]{1,3}\\.){3}[0-9]{1,3}",
    "\\S+",
    "[^\u2028\u3000]{1,5}",
)
# Schemas that crash or hang other translators, each with a valid and an invalid instance.
LARGE: tuple[Case, ...] = (
    Case("maxLength", {"type": "string", "maxLength": 20000}, (("a" * 3000, True), (1, False))),
    Case("minLength", {"type": "string", "minLength": 1500}, (("a" * 1500, True), ("a" * 1499, False))),
    Case(
        "maxItems",
        {"type": "array", "items": {"type": "integer"}, "maxItems": 20000},
        (([7] * 300, True), (["a"], False)),
    ),
    Case(
        "items within bounds",
        {"type": "array", "items": {"type": "integer"}, "minItems": 90, "maxItems": 110},
        (([7] * 90, True), ([7] * 110, True), ([7] * 89, False), ([7] * 111, False)),
    ),
    Case(
        "optional letters",
        {"type": "string", "pattern": "^([a-z]?){200}$"},
        (("a" * 200, True), ("a" * 201, False)),
    ),
    Case("nested stars", {"type": "string", "pattern": "^((a*)*b?)*$"}, (("aabab" * 20, True), ("c", False))),
    Case(
        "counted words",
        {"type": "string", "pattern": "^(?:\\S+\\s+){0,99}\\S+$"},
        (("ab c " * 40 + "d", True), (" ", False)),
    ),
    Case(
        "many names",
        {"type": "object", "properties": {f"name{i}": {"type": "integer"} for i in range(300)}},
        (({"name7": 1, "name299": 2, "other": "x"}, True), ({"name7": "x"}, False)),
    ),
    Case(
        "many words",
        {"enum": [f"word-{i}" for i in range(3000)]},
        (("word-2999", True), ("word-3000", False)),
    ),
    Case(
        "deep items",
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}},
        (([[[]]], True), ([1], False)),
    ),
)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "tiny-llama.gguf"
    fixtures.write_tiny_llama(path)
    return path


def test_schemas_of_the_table_hold_in_llama_cpp(vocabulary: Path) -> None:
    cases = [
        Case(c.name, c.schema, (*((v, True) for v in c.accept), *((v, False) for v in c.reject)))
        for c in CASES
    ]
    result = score(cases, vocabulary)
    assert result.named(*(set(result.counts()) - {PASS})) == []


def test_large_schemas_hold_in_llama_cpp(vocabulary: Path) -> None:
    result = score(LARGE, vocabulary, timeout=20)
    assert result.named(*(set(result.counts()) - {PASS})) == []


def _grammars() -> list[tuple[str, Grammar]]:
    schemas = [(case.name, grammar_alone(case.schema)) for case in CASES]
    patterns = [(pattern, regex_to_grammar(pattern)) for pattern in PATTERNS]
    shipped = [(name, parse_gbnf((FOLDER / f"{name}.gbnf").read_text(encoding="utf-8"))) for name in NAMES]
    return [*schemas, *patterns, *shipped]


def test_executors_agree_on_samples_and_their_mutants(vocabulary: Path) -> None:
    """The recognizer, llama.cpp on GBNF and llguidance on Lark, over random texts of every grammar that we test."""
    random = Random(7)
    llama, guidance = LlamaCppOracle(vocabulary), LlguidanceOracle()
    for name, grammar in _grammars():
        laid_out, on_one_line = Recognizer(grammar), Recognizer(with_optional_spaces(grammar))
        sampler = Sampler(grammar, depth=10, layouts=(COMPACT, SPACED))
        native, matcher = llama.compile(print_gbnf(grammar)), guidance.compile(print_lark(grammar))
        for _ in range(6):
            text = sampler.text(random)
            for sample in (text, _mutant(text, random), _mutant(text, random)):
                assert sample != text or laid_out.matches(sample), (name, text)
                assert llama.accepts(native, sample) is on_one_line.matches(sample), (name, sample)
                assert guidance.accepts(matcher, sample) is laid_out.matches(sample), (name, sample)
        llama.release(native)


def test_characters_beside_excluded_ones_come_in_parts(vocabulary: Path) -> None:
    """Bytes are tokens: the beginning of a character may be the beginning of an excluded one too."""
    llama, guidance = LlamaCppOracle(vocabulary), LlguidanceOracle()
    for pattern, excluded in (
        ("^\\S+$", "\u2003\u2028"),
        ("^[^é]+$", "é"),
        ("^\\P{Lu}*$", "ÀĀ"),
        ("^[^😀-😆]$", "😀"),
    ):
        grammar = grammar_alone({"type": "string", "pattern": pattern})
        native, matcher = llama.compile(print_gbnf(grammar)), guidance.compile(print_lark(grammar))
        for c in "\u2061\u2002ê\u00ff\u2027\u200b\u00bf漢😇\U0001f5ff":
            expected = contains(Pattern(pattern), c)
            text = json.dumps(c, ensure_ascii=False)
            assert llama.accepts(native, text) is expected, (pattern, c)
            assert guidance.accepts(matcher, text) is expected, (pattern, c)
        for c in excluded:
            assert not llama.accepts(native, json.dumps(c, ensure_ascii=False)), (pattern, c)
        llama.release(native)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 100_000),
        (3, 10_001),
        (999, 12_000),
        (1_000, 11_999),
        (20_500, 30_200),
        (20_500, 20_800),
        (20_000, None),
    ],
)
def test_long_strings_are_counted_to_their_bounds(low: int, high: int | None) -> None:
    """As any text is, beside another string that begins alike."""
    schema: dict[str, Any] = {"type": "string", "minLength": low}
    if high is not None:
        schema["maxLength"] = high
    either: dict[str, Any] = {
        "anyOf": [
            {"type": "array", "items": schema},
            {"type": "array", "items": {"enum": ["a", "bc"]}, "maxItems": 1},
        ]
    }
    guidance = LlguidanceOracle()
    alone, beside = (guidance.compile(print_lark(grammar_alone(each))) for each in (schema, either))
    top = high if high is not None else 40_000
    lengths = {0, 1, 999, 1_000, 1_001, low - 1, low, low + 1, top - 1, top, top + 1}
    for length in sorted(length for length in lengths if length >= 0):
        valid = low <= length and (high is None or length <= high)
        text = json.dumps("é" * length, ensure_ascii=False)
        assert guidance.accepts(alone, text) is valid, length
        assert guidance.accepts(beside, f"[{text}]") is valid, length
    assert guidance.accepts(beside, '["bc"]')


def _mutant(text: str, random: Random) -> str:
    """The text with one character dropped, doubled or replaced."""
    if not text:
        return random.choice("a{ 0")
    place = random.randrange(len(text))
    return text[:place] + random.choice(("", text[place] * 2, random.choice('a"1 ,]}'))) + text[place + 1 :]


def test_json_dumps_writes_what_is_accepted(vocabulary: Path) -> None:
    """The default, compact and indented forms, escaped or not; GBNF has no indented ones."""
    parts: list[Any] = [1, 2.5, -3e-07, True, None, {}, []]
    value: dict[str, Any] = {"name": 'é "q" \\ /\n😀', "list": parts, "deep": {"a": {"b": [{"c": ""}]}}}
    grammar = grammar_alone({"type": "object"})
    llama, guidance = LlamaCppOracle(vocabulary), LlguidanceOracle()
    sampler, matcher = llama.compile(print_gbnf(grammar)), guidance.compile(print_lark(grammar))
    forms: tuple[dict[str, Any], ...] = (
        {},
        {"separators": (",", ":")},
        {"indent": 2},
        {"indent": 4},
        {"indent": "\t"},
    )
    for options in forms:
        for ascii_only in (True, False):
            text = json.dumps(value, ensure_ascii=ascii_only, **options)
            assert guidance.accepts(matcher, text)
            assert llama.accepts(sampler, text) is ("indent" not in options)
    llama.release(sampler)
