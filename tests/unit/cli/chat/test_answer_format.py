"""Formats of `--format` and `/format`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jan_serve.cli.chat.answer_format import read_format
from jan_serve.cli.errors import CommandError


def test_formats(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    file = tmp_path / "person.json"
    file.write_text(json.dumps(schema))
    grammar = tmp_path / "yes.gbnf"
    grammar.write_text('root ::= "yes" | "no"')
    assert read_format("json").fields == {"response_format": {"type": "json_object"}}
    assert read_format(str(file)).fields == {
        "response_format": {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    }
    assert read_format(str(grammar)).fields == {"grammar": 'root ::= "yes" | "no"'}
    assert read_format("arithmetic").fields == {"grammar": "arithmetic"}


def test_invalid_formats_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    (tmp_path / "large.json").write_bytes(b" " * ((1 << 20) + 1))
    for name, words in (
        ("bad.json", "neither JSON nor GBNF"),
        ("binary.json", "not UTF-8"),
        ("large.json", "1048576 bytes"),
        ("absent.json", "There is no file"),
        ("absent/x", "There is no file"),
    ):
        with pytest.raises(CommandError, match=words):
            read_format(str(tmp_path / name))
