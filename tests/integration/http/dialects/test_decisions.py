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
from tests.support.clients.raw_http import get, post
from tests.support.servers.served import Served

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
    # In a batch of another size, products are rounded otherwise.
    assert alone["answers"]["q7"]["probability"] == pytest.approx(
        first["answers"]["q7"]["probability"], rel=1e-4
    )
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


def examples(server: Served, count: int) -> list[dict[str, Any]]:
    """Answered by the most probable option, but every third by the next one."""
    made: list[dict[str, Any]] = []
    for number in range(count):
        asked = CHOICE | {"question": f"what is number {number}?"}
        options = decided(server, {"q": asked})["answers"]["q"]["options"]
        ranked = sorted(options, key=lambda item: -item["probability"])
        made.append({"state": STATE, **asked, "answer": ranked[number % 3 == 0]["option"]})
    return made


def test_a_calibration_is_kept_and_applied(server: Served, tmp_path: Path) -> None:
    path = "/v1/decide/calibration?model=exact-llama"
    plain = decided(server, {"q": CHOICE})
    body = {"state": STATE, "questions": {"q": CHOICE}, "calibrated": True}
    response = post(server.url(), "/v1/decide", body)
    assert response.status == 400 and "has no calibration" in error_of(response)["message"]
    file = tmp_path / "examples.jsonl"
    lines = [json.dumps(example) for example in examples(server, 12)]
    file.write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "jan_serve", "decide", "exact-llama", "--url", server.url()]
    done = subprocess.run(
        [*command, "--calibrate", str(file), "--json"], capture_output=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    kept = json.loads(done.stdout)["calibration"]
    assert get(server.url(), path).json() == {"model": "exact-llama", "calibration": kept}
    assert (kept["examples"], kept["accuracy"]) == (12, pytest.approx(2 / 3))
    assert kept["loss_after"] <= kept["loss_before"]
    calibrated = decided(server, {"q": CHOICE}, calibrated=True)
    by_hand = decided(server, {"q": CHOICE}, temperature=kept["temperature"])
    assert calibrated["calibration"] == {"temperature": kept["temperature"], "examples": 12}
    assert (plain["calibration"], by_hand["calibration"]) == (None, None)
    assert calibrated["answers"] == by_hand["answers"]
    asked = {
        "type": "choice",
        "instructions": CHOICE["question"],
        "criteria": dict.fromkeys(CHOICE["options"]),
    }
    body = {"state": STATE, "questions": {"q": asked}, "calibrated": True}
    reply = post(server.url(), "/v1/systemone", body).json()
    assert reply["calibration"] == calibrated["calibration"]
    assert list(reply["answers"]["q"]["probabilities"].values()) == pytest.approx(
        [item["probability"] for item in by_hand["answers"]["q"]["options"]]
    )
    file.write_text("\n".join(lines[:3]), encoding="utf-8")
    few = subprocess.run([*command, "--calibrate", str(file)], capture_output=True, check=False, timeout=120)
    assert few.returncode != 0 and b"3 are too few" in few.stderr
    file.write_text(lines[0] + "\n{", encoding="utf-8")
    broken = subprocess.run(
        [*command, "--calibrate", str(file)], capture_output=True, check=False, timeout=120
    )
    assert broken.returncode == 2 and b"line 2 is not JSON" in broken.stderr


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
    assert error["message"].startswith("questions: item 1: ")


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
    every = json.loads(run(*options, "--several", "--threshold", "0", "--json").stdout)
    assert every["answer"] == CHOICE["options"]
    assert "What applies: nothing." in run(*options, "--several", "--threshold", "1").stderr.decode()
    assert run("--several").returncode == 2
