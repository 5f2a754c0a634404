"""The tasks of `jan-serve certify`, answered by one who solves them and by one who does not."""

from __future__ import annotations

import json
import re
from typing import Any, cast

import pytest

from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.commands.certify import Exam
from jan_serve.cli.errors import NO_SERVER, CommandError
from jan_serve.cli.output import Output


class Solver:
    """A server whose model reads the tasks as a person would. wrong: answers beside the point. most_tools: that fit."""

    def __init__(self, *, wrong: bool = False, n_ctx: int = 40_000, most_tools: int = 100) -> None:
        self.wrong, self.n_ctx, self.most_tools = wrong, n_ctx, most_tools
        self.ended = False

    def get(self, path: str) -> dict[str, Any]:
        if path == "/health":
            if self.ended:
                raise CommandError("no server answers", None, NO_SERVER)
            return {}
        assert path == "/models"
        return {
            "data": [
                {"id": "m", "context_length": self.n_ctx, "architecture": {"input_modalities": ["text"]}}
            ]
        }

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/extras/tokenize":
            return {"tokens": [0] * (2 * len(body["input"].split()))}
        if path == "/v1/completions":
            first, second = re.findall(r"add\((\w+), (\w+)\)", body["prompt"])[0]
            return {"choices": [{"text": f"{first} {'-' if self.wrong else '+'} {second}\n"}]}
        return {"choices": [{"message": self._message(body)}]}

    def _message(self, body: dict[str, Any]) -> dict[str, Any]:
        text = "\n".join(message["content"] for message in body["messages"])
        assert 2 * len(text.split()) <= self.n_ctx
        if tools := body.get("tools"):
            if len(tools) > self.most_tools:
                raise CommandError("the prompt is too long")
            what, value = re.findall(r"Set the (\w+ \w+) to (\d+)", text)[0]
            name = f"set_{what.replace(' ', '_')}"
            assert name in [tool["function"]["name"] for tool in tools]
            assert len({tool["function"]["name"] for tool in tools}) == len(tools)
            arguments = json.dumps({"value": int(value) + self.wrong})
            return {"tool_calls": [{"function": {"name": name, "arguments": arguments}}]}
        if "response_format" in body:
            name, age, city = re.findall(r"(\w+), who is (\d+) years old, lives in (\w+)\.", text)[0]
            return {"content": json.dumps({"name": name, "age": int(age) + self.wrong, "city": city})}
        numbers = re.findall(r"number of the anchor is (\d+)|who is (\d+) years", text)
        return {"content": "" if self.wrong or not numbers else "".join(numbers[-1])}


def marks(solver: Solver) -> dict[str, tuple[int, int]]:
    certificate = Exam(cast(ServerClient, solver), "m", Output()).certificate()
    return {mark.task: (mark.right, mark.of) for mark in certificate.marks}


def test_who_solves_them_gets_full_marks() -> None:
    assert marks(Solver()) == {
        "schema": (4, 4),
        "schema after a thought": (4, 4),
        "1 tool": (4, 4),
        "10 tools": (4, 4),
        "50 tools": (4, 4),
        "turns": (4, 4),
        "infill": (4, 4),
        "needle": (3, 3),
    }


def test_who_does_not_gets_none() -> None:
    assert {right for right, _ in marks(Solver(wrong=True)).values()} == {0}


def test_what_cannot_be_asked_has_no_mark(capsys: pytest.CaptureFixture[str]) -> None:
    found = marks(Solver(most_tools=10, n_ctx=2000))
    assert "50 tools" not in found
    assert found["needle"] == (1, 1)
    assert "50 tools: the prompt is too long" in capsys.readouterr().err


def test_a_server_that_ends_is_no_weak_model() -> None:
    solver = Solver(most_tools=0)
    solver.ended = True
    with pytest.raises(CommandError, match="no server answers"):
        marks(solver)


@pytest.mark.parametrize(("n_ctx", "fits"), [(40_000, True), (8192, False)])
def test_an_agents_prompt_is_timed_if_it_fits(n_ctx: int, fits: bool) -> None:
    certificate = Exam(cast(ServerClient, Solver(n_ctx=n_ctx)), "m", Output()).certificate()
    assert (certificate.cold_s is not None, certificate.warm_s is not None) == (fits, fits)
