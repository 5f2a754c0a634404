from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jan_serve.dialects.openai.responses.custom_input import CustomInput, custom_arguments


def read(pieces: list[str]) -> str:
    taken = CustomInput()
    given_out = [taken.feed(piece) for piece in pieces]
    given_out.append(taken.finish())
    assert "".join(given_out) == taken.value
    return taken.value


def read_everywhere(text: str) -> str:
    """The same however the text is cut."""
    [value] = {
        read([text]),
        read(list(text)),
        *(read([text[:cut], text[cut:]]) for cut in range(len(text) + 1)),
    }
    return value


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"input": "abc"}', "abc"),
        ('{"input":""}', ""),
        (' {\n"input" : "a\\nb\\t\\"c\\" \\\\ \\/"\n}', 'a\nb\t"c" \\ /'),
        ('{"input": "line\nbreak"}', "line\nbreak"),
        ('{"input": "\\u00e9\\ud83d\\ude42é🙂"}', "é🙂é🙂"),
        # Half a pair is no character.
        ('{"input": "\\ud83dx"}', "\ufffdx"),
        ('{"input": "\\ud83d"}', "\ufffd"),
        # Cut short: what is whole of it.
        ('{"input": "ab', "ab"),
        ('{"input": "ab\\', "ab"),
        ('{"input": "ab\\u00', "ab"),
        ('{"inp', '{"inp'),
        # Other arguments than were asked for.
        ('{"patch": "x"}', '{"patch": "x"}'),
        ('{"a": 1, "input": "x"}', "x"),
        ('{"input": 3}', '{"input": 3}'),
        ("[1]", "[1]"),
        ("", ""),
    ],
)
def test_the_input_comes_out_however_it_is_cut(arguments: str, value: str) -> None:
    assert read_everywhere(arguments) == value


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
def test_any_text_comes_through(text: str, ascii_only: bool) -> None:
    assert read(list(json.dumps({"input": text}, ensure_ascii=ascii_only))) == text
    assert read([custom_arguments(text)]) == text
