"""Names and values of `/set` and `--set`."""

from __future__ import annotations

from typing import Any

import pytest

from jan_serve.cli.chat.parameters import PARAMETERS, assignments, parameter
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
        ("temperature", "NaN", ("temperature", "NaN")),
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
