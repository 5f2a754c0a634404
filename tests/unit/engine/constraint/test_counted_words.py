"""Words that a pattern counts beside a length: a mask within the engine's limits at each token, and the right texts."""

from __future__ import annotations

import random
import re

import pytest

from jan_serve.constraint import trial
from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import JsonSchemaConstraint
from jan_serve.errors import GrammarTooComplex, UnsupportedSchema
from jan_serve.lark_matcher import made_matcher
from tests.conformance.uniqueness_oracle import UniquenessOracle

PATTERNS = (
    *(
        r"^(?:\S+\s+){0,99}\S+$",
        r"^(\S+\s+){0,20}\S+$",
        r"^(?:\S+\s+)*\S+$",
        r"^(?:[^\s,]+, ?){1,30}[^\s,]+$",
    ),
    *(r"^(?=.*[0-9])(?=.*[a-z]).*$", r"^(?=.*[0-9])(?=.*[a-z])(?=.*[A-Z]).{8,}$", r"^(?:\w+ ){0,9}\w+$"),
    *(r"^(?!\s*$).+", r"^\S(.*\S)?$", r"^(?:(?:\S+\s+){0,9}\S+\n)*$", r"^(?:[\s\S]{1,40}\n){0,20}$"),
)
LENGTHS: tuple[dict[str, int], ...] = (
    {},
    {"maxLength": 100},
    {"maxLength": 500},
    {"maxLength": 1_000},
    {"maxLength": 5_000},
    {"maxLength": 10_000},
    {"minLength": 10, "maxLength": 2_000},
    {"minLength": 200},
)


def _text(draw: random.Random, length: int) -> str:
    """A text of words."""
    words = ("a", "B7", "word", "zwölf", "x,", "1,", "-", "longer")
    text = ""
    while len(text) < length:
        text += draw.choice(words) + draw.choice((" ", " ", "  ", "\n", ", "))
    return text[:length]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("length", LENGTHS, ids=str)
def test_a_length_beside_a_pattern_never_ends_an_answer(pattern: str, length: dict[str, int]) -> None:
    """Neither where the text begins nor further on; a schema that would is refused when it is compiled."""
    schema = {"type": "string", "pattern": pattern, **length}
    try:
        compiled = enforce(JsonSchemaConstraint({"type": "object", "properties": {"a": schema}})).compiled()
    except (GrammarTooComplex, UnsupportedSchema) as error:
        assert error.pointer == "/properties/a"
        return
    matcher = made_matcher(trial.tokenizer(), compiled.lark)
    for token in b'{"a": "':
        assert matcher.consume_token(token)
    draw = random.Random(7)
    for _ in range(40):
        found = trial.drawn_token(matcher, draw)
        assert not matcher.is_error(), matcher.get_error()
        if found is None or not matcher.consume_token(found):
            break
    assert not matcher.is_error(), matcher.get_error()


@pytest.mark.parametrize("pattern", PATTERNS[:-2])
@pytest.mark.parametrize("most", [70, 300, 700])
def test_a_length_beside_a_pattern_is_judged_right(pattern: str, most: int) -> None:
    compiled = enforce(
        JsonSchemaConstraint({"type": "string", "pattern": pattern, "minLength": 3, "maxLength": most})
    ).compiled()
    oracle = UniquenessOracle()
    assert compiled.uniqueness is not None
    judge = oracle.compile(compiled.lark, compiled.uniqueness)
    draw = random.Random(most)
    # As ECMA-262 has it, where `$` is the end only.
    expected = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
    texts = [_text(draw, length) for length in (0, 2, 3, 9, 40, most - 1, most, most + 1) for _ in range(6)]
    texts += [text.strip() for text in texts]
    for text in texts:
        valid = 3 <= len(text) <= most and expected.search(text) is not None
        written = text.replace("\n", "\\n")
        assert oracle.accepts(judge, f'"{written}"') is valid, text
