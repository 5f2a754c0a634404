"""The tasks of `jan-serve certify`, answered by one who solves them and by one who does not."""

from __future__ import annotations

import base64
import io
import json
import re
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from jan_serve.cli.client.server_client import ServerClient
from jan_serve.cli.commands.certify import Exam
from jan_serve.cli.errors import NO_SERVER, CommandError

NOISE = " ".join(map(str, range(10, 1000))) + " red green blue yellow"
FORMS = {"schema kept", "forced call"}
"""What a grammar gives even a model that knows nothing."""


class Solver:
    """A server whose model reads the tasks as a person would. wrong: answers beside the point. most_tools: that fit.

    noise: what it writes where nothing holds it to a form.
    """

    def __init__(
        self,
        *,
        wrong: bool = False,
        noise: str | None = None,
        thinks: bool = True,
        n_ctx: int = 40_000,
        most_tools: int = 100,
    ) -> None:
        self.wrong, self.noise, self.n_ctx, self.most_tools = wrong, noise, n_ctx, most_tools
        self.thinks = thinks
        self.ended = False

    def get(self, path: str) -> dict[str, Any]:
        if path == "/health":
            if self.ended:
                raise CommandError("no server answers", None, NO_SERVER)
            return {}
        assert path == "/models"
        modalities = ["text", "image"]
        return {
            "data": [
                {"id": "m", "context_length": self.n_ctx, "architecture": {"input_modalities": modalities}}
            ]
        }

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if path == "/extras/tokenize":
            return {"tokens": [0] * (2 * len(body["input"].split()))}
        if path == "/v1/completions":
            first, second = re.findall(r"add\((\w+), (\w+)\)", body["prompt"])[0]
            text = self.noise or f"{first} {'-' if self.wrong else '+'} {second}\n"
            return {"choices": [{"text": text}]}
        message = self._message(body)
        if self.thinks and body["reasoning_effort"] != "none":
            message["reasoning_content"] = "I copy the record."
        return {"choices": [{"message": message}]}

    def _message(self, body: dict[str, Any]) -> dict[str, Any]:
        content = body["messages"][-1]["content"]
        if not isinstance(content, str):
            return {"content": self._colour(content[0]["image_url"]["url"])}
        text = "\n".join(message["content"] for message in body["messages"])
        assert 2 * len(text.split()) <= self.n_ctx
        if tools := body.get("tools"):
            return self._used(body, tools, text)
        if "response_format" in body:
            name, age, city = re.findall(r"(\w+), who is (\d+) years old, lives in (\w+)\.", text)[0]
            age = int(age) + (self.wrong or self.noise is not None)
            return {"content": json.dumps({"name": name, "age": age, "city": city})}
        numbers = re.findall(r"number of the anchor is (\d+)|who is (\d+) years", text)
        known = f"It is {''.join(numbers[-1])}." if numbers else ""
        return {"content": self.noise or ("" if self.wrong else known)}

    def _used(self, body: dict[str, Any], tools: list[dict[str, Any]], text: str) -> dict[str, Any]:
        if len(tools) > self.most_tools:
            raise CommandError("the prompt is too long")
        names = [tool["function"]["name"] for tool in tools]
        assert len(set(names)) == len(names)
        if body["messages"][-1]["role"] == "tool":
            before = json.loads(body["messages"][-1]["content"])["before"]
            return {"content": self.noise or f"It is 1, and was {before + self.wrong} before."}
        if body.get("tool_choice") == "required":
            return call(names[0], {"value": "much" if self.wrong else 5})
        what, value = re.findall(r"Set the (\w+ \w+) to (\d+)", text)[0]
        name = f"set_{what.replace(' ', '_')}"
        assert name in names
        return {"content": self.noise} if self.noise else call(name, {"value": int(value) + self.wrong})

    def _colour(self, url: str) -> str:
        """The colour of the pixel in the middle."""
        data = base64.b64decode(url.partition(",")[2])
        picture = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        assert picture[0, 0].tolist() == [255, 255, 255], "a circle on white"
        red, green, blue = (int(value) > 128 for value in picture[64, 64])
        found = {(1, 0, 0): "red", (0, 1, 0): "green", (0, 0, 1): "blue", (1, 1, 0): "yellow"}
        return self.noise or ("A tired square." if self.wrong else f"It is {found[red, green, blue]}.")


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [{"function": {"name": name, "arguments": json.dumps(arguments)}}]}


def marks(solver: Solver) -> dict[str, tuple[int, int]]:
    certificate = Exam(cast(ServerClient, solver), "m").certificate()
    return {f"{mark.task} {mark.tokens or ''}".strip(): (mark.right, mark.of) for mark in certificate.marks}


def test_who_solves_them_gets_full_marks() -> None:
    assert marks(Solver()) == {
        "schema kept": (4, 4),
        "schema right": (4, 4),
        "schema after a thought": (4, 4),
        "1 tool": (4, 4),
        "10 tools": (4, 4),
        "50 tools": (4, 4),
        "forced call": (4, 4),
        "tool result": (4, 4),
        "turns": (4, 4),
        "infill": (4, 4),
        "picture": (4, 4),
        "needle 4000": (1, 1),
        "needle 16000": (1, 1),
        "needle 39488": (1, 1),
    }


def test_who_does_not_gets_none() -> None:
    found = marks(Solver(wrong=True))
    assert {task for task, (right, _) in found.items() if right} == {"schema kept"}


def test_noise_is_right_only_where_a_grammar_holds_it() -> None:
    """Even where it has every number and every colour that is asked for."""
    found = marks(Solver(noise=NOISE))
    assert {task for task, (right, _) in found.items() if right} == FORMS


def test_a_model_that_does_not_think_has_no_mark_for_thoughts() -> None:
    assert "schema after a thought" not in marks(Solver(thinks=False))


def test_what_one_model_cannot_be_asked_does_not_change_the_tasks_of_others() -> None:
    asked: list[list[object]] = []
    for most_tools in (100, 10):
        solver = Solver(most_tools=most_tools)
        prompts: list[object] = []
        answer = solver.post

        def post(path: str, body: dict[str, Any], seen: list[object] = prompts, then: Any = answer) -> Any:
            seen.append(body["messages"][-1]["content"] if "messages" in body else body.get("prompt"))
            return then(path, body)

        solver.post = post
        marks(solver)
        asked.append([prompt for prompt in prompts if isinstance(prompt, str) and "How old" in prompt])
    assert asked[0] == asked[1] and len(asked[0]) == 4


def test_what_cannot_be_asked_has_no_mark(capsys: pytest.CaptureFixture[str]) -> None:
    found = marks(Solver(most_tools=10, n_ctx=2000))
    assert "50 tools" not in found
    assert [task for task in found if "needle" in task] == ["needle 1488"]
    assert "50 tools: the prompt is too long" in capsys.readouterr().err


def test_a_server_that_ends_is_no_weak_model() -> None:
    solver = Solver(most_tools=0)
    solver.ended = True
    with pytest.raises(CommandError, match="no server answers"):
        marks(solver)


@pytest.mark.parametrize(("n_ctx", "fits"), [(40_000, True), (8192, False)])
def test_an_agents_prompt_is_timed_if_it_fits(n_ctx: int, fits: bool) -> None:
    certificate = Exam(cast(ServerClient, Solver(n_ctx=n_ctx)), "m").certificate()
    assert (certificate.cold_s is not None, certificate.warm_s is not None) == (fits, fits)
