"""Typed decisions and their command over a real server."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http.support import COMPLETIONS, assert_clean_log, error_of, serving_models
from tests.support.raw_http import post
from tests.support.served import Served

pytestmark = pytest.mark.integration

STATE = "people live in homes near the water and read " * 4
CHOICE: dict[str, Any] = {"question": "what is it?", "options": ["people", "the water", "oil"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, exact_llama: Path, tiny_bert: Path) -> Generator[Served]:
    flags = ("--n-ctx", "1024", "--max-models", "2")
    with serving_models(tmp_path_factory.mktemp("decisions"), exact_llama, tiny_bert, flags=flags) as running:
        yield running
        assert_clean_log(running)


def decided(server: Served, questions: dict[str, Any], **fields: Any) -> dict[str, Any]:
    response = post(server.url(), "/v1/decide", {"state": STATE, "questions": questions, **fields})
    assert response.status == 200, response.body
    reply: dict[str, Any] = response.json()
    return reply


def chat_text(server: Served, question: str) -> str:
    """The prompt up to the answer, as this server's chats have it."""
    messages = [{"role": "user", "content": f"{STATE}\n\n{question}"}]
    response = post(server.url(), "/apply-template", {"messages": messages})
    assert response.status == 200, response.body
    text: str = response.json()["prompt"]
    return text


def token_logprobs(server: Served, prompt: str) -> list[float]:
    body = {"prompt": prompt, "echo": True, "logprobs": 0, "max_tokens": 0}
    scored = post(server.url(), COMPLETIONS, body).json()["choices"][0]["logprobs"]
    found: list[float] = scored["token_logprobs"]
    return found


def test_the_numbers_are_those_of_scored_prompts(server: Served) -> None:
    answer = decided(server, {"q": CHOICE}, tokenisations="canonical")["answers"]["q"]
    lines = "\n".join(f"- {option}" for option in CHOICE["options"])
    asked = f"{CHOICE['question']}\nAnswer with exactly one of these options and nothing else:\n{lines}"
    prompt = chat_text(server, asked)
    before = len(token_logprobs(server, prompt))
    for item in answer["options"]:
        values = token_logprobs(server, prompt + item["option"])[before:]
        assert item["logprob"] == pytest.approx(math.fsum(values), abs=1e-4)
    assert answer["mass"] == pytest.approx(math.fsum(math.exp(item["logprob"]) for item in answer["options"]))
    shares = [math.exp(item["logprob"]) / answer["mass"] for item in answer["options"]]
    assert [item["probability"] for item in answer["options"]] == pytest.approx(shares)


def test_many_questions_on_one_text(server: Served) -> None:
    """The text is read once: the second time it comes from the cache, and the numbers stay."""
    questions = {f"q{number}": CHOICE | {"question": f"what is number {number}?"} for number in range(40)} | {
        "sure": {"question": "is it?", "type": "yes_no"},
        "far": {"question": "?", "type": "number", "min": 1, "max": 12},
    }
    first, again = (decided(server, questions) for _ in range(2))
    alone = decided(server, {"q7": questions["q7"]})
    assert again["usage"]["cached_tokens"] > len(STATE.split())
    assert alone["usage"]["prompt_tokens"] * 3 > again["usage"]["cached_tokens"]
    for name, answer in first["answers"].items():
        assert again["answers"][name]["options"] == [pytest.approx(item) for item in answer["options"]], name
    assert alone["answers"]["q7"]["probability"] == pytest.approx(first["answers"]["q7"]["probability"])
    assert isinstance(first["answers"]["sure"]["answer"], bool)
    assert [item["option"] for item in first["answers"]["far"]["options"]] == list(range(1, 13))


def test_system_one_has_the_same_numbers(server: Served) -> None:
    options = CHOICE["options"]
    wanted = decided(server, {"q": CHOICE})["answers"]["q"]
    asked = {"type": "choice", "instructions": CHOICE["question"], "criteria": dict.fromkeys(options)}
    response = post(server.url(), "/v1/systemone", {"state": STATE, "questions": {"q": asked}})
    assert response.status == 200, response.body
    answer = response.json()["answers"]["q"]
    assert answer["choice"] == wanted["answer"]
    assert [answer["probabilities"][option] for option in options] == pytest.approx(
        [item["probability"] for item in wanted["options"]]
    )


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a text that does not fit": ({"state": "oil " * 2000}, "context"),
    "a model that does not write": ({"model": "tiny-bert"}, "does not write text"),
    "an option that is too long": (
        {"questions": {"q": CHOICE | {"options": ["x" * 600, "y"]}}},
        "limit is 512",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_asked_is_refused_with_the_reason(server: Served, case: str) -> None:
    fields, words = REFUSED[case]
    response = post(server.url(), "/v1/decide", {"state": STATE, "questions": {"q": CHOICE}} | fields)
    assert response.status == 400
    assert words in error_of(response)["message"]


def test_long_questions_are_named(server: Served) -> None:
    long = {"question": "oil " * 2000, "type": "yes_no"}
    questions = {"short": CHOICE, "long": long, "longer": long | {"question": "oil " * 3000}}
    response = post(server.url(), "/v1/decide", {"state": STATE, "questions": questions})
    error = error_of(response)
    assert (response.status, error["code"]) == (400, "context_length_exceeded")
    assert "item 2" in error["message"] and "1" in error["message"].rpartition("items")[2]


def test_the_command(server: Served) -> None:
    command = [
        sys.executable,
        "-m",
        "jan_serve",
        "decide",
        "exact-llama",
        "what is it?",
        "--url",
        server.url(),
    ]
    options = ("--options", ",".join(CHOICE["options"]))

    def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*command, *arguments], input=STATE.encode(), capture_output=True, check=False, timeout=120
        )

    done = run(*options, "--json")
    assert done.returncode == 0, done.stderr
    wanted = decided(server, {"answer": CHOICE})["answers"]["answer"]
    assert json.loads(done.stdout)["probability"] == pytest.approx(wanted["probability"])
    table = run(*options).stdout.decode().splitlines()
    assert any(str(wanted["answer"]) in line and "█" in line for line in table)
    abstained = run("--threshold", "1", "--json")
    assert abstained.returncode == 1 and json.loads(abstained.stdout)["answer"] is None
    assert run("--options", " , ").returncode == 2
