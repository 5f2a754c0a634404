"""`jan-serve grammar` prints a grammar, and finds where a text leaves it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from jan_serve.cli.main import main
from jan_serve.constraint.parse_gbnf import parse_gbnf
from jan_serve.resources import shipped_grammars

SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return str(path)


def test_a_schema_becomes_gbnf_that_parses(schema_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grammar", schema_file]) == 0
    parse_gbnf(capsys.readouterr().out)


def test_lark_has_a_start_rule(schema_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grammar", schema_file, "--lark"]) == 0
    assert "start:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ('{"age": 3}', 0, "belongs"),
        ('{"age": x}', 1, "at character 8"),
        ('{"age": 3', 1, "only the beginning"),
    ],
)
def test_a_text_is_checked(
    schema_file: str, capsys: pytest.CaptureFixture[str], text: str, status: int, words: str
) -> None:
    assert main(["grammar", schema_file, "--check", text]) == status
    assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"age": 3, "name": 1}', "belongs"),
        ('{"name": 1, "age": 3}', "leaves the grammar at character 16"),
        ('{"age": 3, "age": 4}', "leaves the grammar at character 15"),
        ('{\n  "age": 3\n}', "belongs"),
    ],
)
def test_a_text_is_checked_by_what_the_server_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"type": "object", "properties": {"age": {"type": "integer"}, "name": {}}}))
    assert main(["grammar", str(path), "--check", text]) == (words != "belongs")
    assert words in capsys.readouterr().out
    any_order = main(["grammar", str(path), "--property-order", "any", "--check", text])
    assert any_order == (text.count("age") > 1)


def test_gbnf_says_what_the_server_holds_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"type": "array", "items": {"type": "string"}, "uniqueItems": True}))
    assert main(["grammar", str(path)]) == 0
    assert "# The server also lets no item of an array" in capsys.readouterr().out
    path.write_text(json.dumps({"type": "string", "pattern": "a.{13}b"}))
    assert main(["grammar", str(path), "--lark"]) == 0
    assert main(["grammar", str(path)]) == 1
    assert "the server takes this as Lark, and GBNF cannot say it" in capsys.readouterr().err


def test_a_pattern_matches_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grammar", "--regex", "[a-c]{2}", "--check", "ab"]) == 0
    assert main(["grammar", "--regex", "[a-c]{2}", "--check", "abc"]) == 1
    assert "at character 2" in capsys.readouterr().out


def test_standard_input_and_shipped_names_are_sources(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'root ::= "a"')))
    assert main(["grammar", "-", "--check", "a"]) == 0
    for name in sorted(shipped_grammars())[:1]:
        assert main(["grammar", name]) == 0
    capsys.readouterr()


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ([], 2, "either SOURCE or --regex"),
        (["nowhere.json"], 2, "cannot read nowhere.json"),
        (["--regex", "(?<=a)b"], 1, "lookbehind"),
    ],
)
def test_unsupported_input_is_rejected(
    capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, words: str
) -> None:
    assert main(["grammar", *arguments]) == status
    assert words in capsys.readouterr().err


def test_a_schema_is_explained(schema_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grammar", schema_file, "--explain"]) == 0
    assert capsys.readouterr().out.startswith("compiles\n")


def test_a_refused_schema_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "schema.json"
    closed = {"type": "object", "additionalProperties": False}
    path.write_text(json.dumps({"type": "array", "items": closed, "uniqueItems": True}))
    assert main(["grammar", str(path), "--explain"]) == 1
    assert "it compiles without `uniqueItems` at /" in capsys.readouterr().out


def test_only_schemas_are_explained() -> None:
    assert main(["grammar", "--regex", "a", "--explain"]) == 2
