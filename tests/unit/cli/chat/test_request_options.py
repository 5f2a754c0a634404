"""Parameters, formats and files of requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.chat.request_options import PARAMETERS, assignments, parameter, read_format
from jan_serve.cli.errors import CommandError
from jan_serve.dialects.openai.chat.wire import CreateChatCompletionRequest


def test_every_parameter_is_a_field_of_the_request() -> None:
    assert PARAMETERS.keys() <= CreateChatCompletionRequest.model_fields.keys()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("temperature", "0.2", ("temperature", 0.2)),
        ("top-k", "40", ("top_k", 40)),
        ("TOP_P", " 1 ", ("top_p", 1)),
        ("stop", '["a", "b"]', ("stop", ["a", "b"])),
        ("stop", "END", ("stop", "END")),
        ("seed", "null", ("seed", None)),
        ("enable_thinking", "off", ("enable_thinking", False)),
        ("enable_thinking", "true", ("enable_thinking", True)),
        ("reasoning_effort", "low", ("reasoning_effort", "low")),
    ],
)
def test_values(name: str, text: str, expected: tuple[str, Any]) -> None:
    assert parameter(name, text) == expected


@pytest.mark.parametrize(
    ("name", "text", "message", "next_step"),
    [
        ("temprature", "1", "There is no parameter 'temprature'.", "Did you mean temperature?"),
        ("model", "1", "There is no parameter 'model'.", "top_p"),
        ("seed", " ", "seed needs a value", ""),
        ("temperature", "hot", "temperature takes a number, not 'hot': randomness", ""),
        ("temperature", "NaN", "temperature takes a number", ""),
        ("top_k", "on", "top_k takes a number", ""),
    ],
)
def test_invalid_parameters_are_rejected(name: str, text: str, message: str, next_step: str) -> None:
    with pytest.raises(CommandError) as raised:
        parameter(name, text)
    assert message in raised.value.message
    assert next_step in (raised.value.next_step or "")
    assert raised.value.status == 2


def test_assignments() -> None:
    assert assignments(["temperature=0", "stop=a=b", "temperature=1"]) == {"temperature": 1, "stop": "a=b"}
    with pytest.raises(CommandError, match="has no `=`"):
        assignments(["temperature"])


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
