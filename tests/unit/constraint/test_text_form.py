"""Characters as themselves, and inside a JSON string in every spelling."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from jan_serve.constraint.charset import ANY, MAX_CODE_POINT, CharSet, char_set, contains
from jan_serve.constraint.rules import RuleBuilder
from jan_serve.constraint.text_form import JsonText
from tests.unit.constraint.recognizer import Recognizer

SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
CODES = st.one_of(
    st.integers(0, 0x100),
    st.integers(0, 0xD7FF),
    st.integers(0xE000, 0xFFFF),
    st.integers(0x10000, MAX_CODE_POINT),
)
SETS = st.lists(st.tuples(CODES, st.sampled_from([0, 1, 9, 300, 5000])), min_size=1, max_size=3).map(
    lambda ranges: char_set((low, min(low + more, MAX_CODE_POINT)) for low, more in ranges)
)


def recognizer_of(chars: CharSet, *, is_excluded: bool = False) -> Recognizer:
    rules = RuleBuilder()
    form = JsonText(rules)
    expr = (form.excluded if is_excluded else form).chars(chars)
    return Recognizer(rules.grammar(expr))


def near(chars: CharSet) -> set[int]:
    """The ends of each range and their neighbours, and where spellings change."""
    codes = {code for low, high in chars for code in (low - 1, low, low + 1, high - 1, high, high + 1)}
    codes |= {
        0,
        0x1F,
        0x20,
        0x22,
        0x2F,
        0x5C,
        0x7E,
        0x7F,
        0xFF,
        0xD7FF,
        0xE000,
        0xFFFF,
        0x10000,
        MAX_CODE_POINT,
    }
    return {code for code in codes if 0 <= code <= MAX_CODE_POINT and not 0xD800 <= code < 0xE000}


@given(SETS)
def test_excluded_characters_have_all_spellings_of_json(chars: CharSet) -> None:
    any_char, excluded = recognizer_of(ANY), recognizer_of(chars, is_excluded=True)
    for code in near(chars):
        c = chr(code)
        coded = json.dumps(c)[1:-1] if code > 0x7E else f"\\u{code:04x}"
        short = {**SHORT, "/": "\\/"}.get(c, c)
        for spelling in (c, short, coded, "\\u" + coded[2:].upper().replace("\\U", "\\u")):
            inside = contains(chars, code) and any_char.matches(spelling)
            assert excluded.matches(spelling) is inside, spelling


@given(SETS)
def test_every_spelling_of_a_character(chars: CharSet) -> None:
    recognizer = recognizer_of(chars)
    for code in near(chars):
        c = chr(code)
        inside = contains(chars, code)
        coded = json.dumps(c)[1:-1] if code > 0x7E else f"\\u{code:04x}"
        raw = code >= 0x20 and c not in '"\\'
        must_be_coded = code < 0x20 or code > 0x7E
        assert recognizer.matches(c) is (inside and raw), hex(code)
        assert recognizer.matches(coded) is (inside and must_be_coded), coded
        assert recognizer.matches("\\u" + coded[2:].upper().replace("\\U", "\\u")) is (
            inside and must_be_coded
        )
        if c in SHORT:
            assert recognizer.matches(SHORT[c]) is inside


def test_any_character_has_all_spellings_of_json() -> None:
    recognizer = recognizer_of(ANY)
    for spelling in ("a", "\\u0061", "\\/", "/", "\\u002F", '\\"', "\\u0022", "é", "\\ud83d\\ude00", "😀"):
        assert recognizer.matches(spelling), spelling
        assert len(json.loads(f'"{spelling}"')) == 1
    for spelling in ('"', "\\", "\n", "\\x41", "\\'", "\\ud83d", "\\ude00", "\\ude00\\ud83d", "\\u12", ""):
        assert not recognizer.matches(spelling), spelling


@given(st.text(max_size=6))
def test_a_literal_has_exactly_its_text(text: str) -> None:
    rules = RuleBuilder()
    recognizer = Recognizer(rules.grammar(JsonText(rules).literal(text)))
    for ascii_only in (True, False):
        spelled = json.dumps(text, ensure_ascii=ascii_only)[1:-1].replace("\x7f", "\\u007f")
        assert recognizer.matches(spelled)
        assert not recognizer.matches(spelled + "x")
        assert not text or not recognizer.matches("")
