"""Answers of every family from `cases/`, one file a format: calls as models write them, their slips, what is no call.

templates: excerpts of chat templates, by which the format must be found. case: `answer`, and what it comes to.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from jan_serve.chat.detect import FORMATS, detect_format
from tests.unit.chat.formats.answers import Call, parse_everywhere

BY_NAME: Final = {chat_format.name: chat_format for chat_format in FORMATS}
FILES: Final = {
    path.stem: tomllib.loads(path.read_text(encoding="utf-8"))
    for path in sorted((Path(__file__).parent / "cases").glob("*.toml"))
}
CASES: Final[list[tuple[str, dict[str, Any]]]] = [
    (name, case) for name, content in FILES.items() for case in content["case"]
]
EXCERPTS: Final[list[tuple[str, str]]] = [
    (name, excerpt) for name, content in FILES.items() for excerpt in content["templates"]
]


def test_every_format_has_cases() -> None:
    assert set(FILES) == set(BY_NAME)


@pytest.mark.parametrize(("name", "excerpt"), EXCERPTS, ids=[name for name, _ in EXCERPTS])
def test_format_is_found_by_an_excerpt(name: str, excerpt: str) -> None:
    assert detect_format(excerpt).name == name


@pytest.mark.drawn
@pytest.mark.parametrize(("name", "case"), CASES, ids=[f"{name}: {case['name']}" for name, case in CASES])
def test_answer_of_a_case(name: str, case: dict[str, Any]) -> None:
    answer = parse_everywhere(
        BY_NAME[name], case["answer"], starts_in_thought=case.get("starts_in_thought", False)
    )
    assert answer.text == case.get("text", "")
    assert answer.reasoning == case.get("reasoning", "")
    assert answer.calls == tuple(Call(*call) for call in case.get("calls", []))
