from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.errors import InvalidGrammar
from jan_serve.wiring.grammar_files import MAX_FILE_BYTES, GrammarFiles

SHIPPED = {"json": 'root ::= "{}"', "list": 'root ::= "-"'}


def test_a_file_of_the_user_comes_first_and_counts_at_once(tmp_path: Path) -> None:
    grammars = GrammarFiles(SHIPPED, tmp_path / "grammars")
    assert grammars["json"] == SHIPPED["json"]
    (tmp_path / "grammars").mkdir()
    own = tmp_path / "grammars" / "json.gbnf"
    own.write_text('root ::= "mine é"', encoding="utf-8")
    assert grammars["json"] == 'root ::= "mine é"'
    own.write_text('root ::= "edited"', encoding="utf-8")
    assert grammars["json"] == 'root ::= "edited"'
    own.rename(own.with_stem("other"))
    assert list(grammars) == ["other", "json", "list"]
    assert len(grammars) == 3


@pytest.mark.parametrize(
    "name", ["", "no", "../json", "a/b", "json.gbnf", 'root ::= "a"', "x" * 65, ".hidden"]
)
def test_invalid_names_are_not_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "json.gbnf").write_text("x", encoding="utf-8")
    grammars = GrammarFiles(SHIPPED, tmp_path / "grammars")
    assert name not in grammars
    with pytest.raises(KeyError):
        grammars[name]


def test_files_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    grammars = GrammarFiles(SHIPPED, tmp_path)
    (tmp_path / "long.gbnf").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "bytes.gbnf").write_bytes(b"\xff")
    (tmp_path / "folder.gbnf").mkdir()
    for name in ("long", "bytes", "folder"):
        with pytest.raises(InvalidGrammar, match=name):
            grammars[name]
