"""run with a prompt, against fake engines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.media.pictures import picture
from tests.unit.cli.conftest import Run


def test_an_answer_is_all_of_the_output(ask: Run) -> None:
    answer = ask("run", "alpha", "!say", "Hello", "there")
    assert (answer.status, answer.out, answer.err) == (0, "Hello there\n", "")


def test_the_default_model(ask: Run) -> None:
    assert json.loads(ask("run", "--json", stdin=b"!say x").out)["model"] == "alpha"
    assert ask("run", "", "!say y").out == "y\n"


def test_a_line_break_of_the_answer_is_not_doubled(ask: Run) -> None:
    assert ask("run", "alpha", r'!say "a\nb\n"').out == "a\nb\n"


def test_control_characters_are_data_in_a_pipe(ask: Run) -> None:
    assert ask("run", "alpha", r'!say "\u001b[31m\r\n"').out == "\x1b[31m\r\n"


def test_control_characters_are_escaped_on_a_terminal(ask: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jan_serve.cli.output.on_terminal", lambda: True)
    assert ask("run", "alpha", r'!say "a\u001b[31m\tb\nc"').out == "a\\x1b[31m\tb\nc\n"


def test_piped_text_follows_the_prompt(ask: Run) -> None:
    out = ask("run", "alpha", "!echo", "this:", stdin=b"\nfirst\nsecond\n\n").out
    assert "!echo this:\n\nfirst\nsecond<|" in out.replace("\r", "")
    assert ask("run", "alpha", stdin=b"!say piped").out == "piped\n"


def test_the_system_message_and_parameters_are_sent(ask: Run) -> None:
    assert "Be brief." in ask("run", "alpha", "--system", "Be brief.", "!echo").out
    answer = json.loads(ask("run", "alpha", "--set", "max_tokens=2", "--json", "!stream 9").out)
    assert answer["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 2
    refused = ask("run", "alpha", "--set", "temperature=hot", "x")
    assert (refused.status, refused.out) == (2, "")
    assert "temperature" in refused.err


def test_an_incomplete_answer_is_noted(ask: Run) -> None:
    answer = ask("run", "alpha", "--set", "max_tokens=2", "!stream 9")
    assert answer.status == 0
    assert "The answer is incomplete" in answer.err


def test_statistics_go_to_standard_error(ask: Run) -> None:
    answer = ask("run", "alpha", "--stats", "!say x")
    assert answer.out == "x\n"
    assert "prompt tokens" in answer.err


NOTICE = "This file has no chat template: it is a base model that continues text, not one that chats.\n"


def test_a_base_model_is_announced_once(ask: Run) -> None:
    answer = ask("run", "no-template", "!say x")
    assert (answer.status, answer.out, answer.err) == (0, "x\n", NOTICE)
    answer = ask("run", "no-template", "--json", "!say x")
    assert (json.loads(answer.out)["text"], answer.err) == ("x", NOTICE)


@pytest.mark.parametrize("name", ["qwen3-4b", "Qwen3-4B", "qwen3-4b:Q4_K_M"])
@pytest.mark.parametrize(
    "words",
    [("run", "{}", "hi"), ("load", "{}"), ("load", "--no-wait", "{}"), ("embed", "{}", "text"),
     ("tokenize", "{}", "text"),
     ("rerank", "{}", "query", "document"), ("decide", "{}", "state", "--options", "a,b"), ("stop", "{}")],
)  # fmt: skip
def test_a_model_of_the_catalogue_that_is_not_here(ask: Run, words: tuple[str, ...], name: str) -> None:
    answer = ask(*(word.format(name) for word in words), stdin=b"text")
    pull = f"`jan-serve pull {name}` downloads it."
    assert (answer.status, answer.out) == (2, "")
    assert answer.err == f"error: The model `{name}` does not exist here. {pull}\n"


def test_a_failure_within_the_answer(ask: Run) -> None:
    answer = ask("run", "alpha", "!fail-after 2 engine_crashed")
    assert (answer.status, answer.out) == (1, "0 1\n")
    assert answer.err.startswith("error: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("alpha",), "There is no prompt. 'alpha' is the name of the model."),
        (("alpha", "--json"), "There is no prompt."),
        (("alpha", "--set", "x=1", "hi"), "There is no parameter 'x'."),
        (("alpha", "--set", "seed", "hi"), "NAME=VALUE"),
        (("alpha", "--format", "no.json", "hi"), "There is no file no.json"),
        (("nope", "hi"), "The model `nope` does not exist."),
        (("How are you?",), "The prompt follows the name of a model"),
        (("How are you? " * 5_000,), "The prompt follows the name of a model"),
        (("./no/file.gguf", "hi"), "There is no file ./no/file.gguf."),
        (("no/file.gguf", "hi"), "does not exist"),
    ],
)
def test_wrong_use(ask: Run, words: tuple[str, ...], message: str) -> None:
    answer = ask("run", *words, stdin=b"" if len(words) > 1 or words == ("alpha",) else b"x")
    assert (answer.status, answer.out) == (2, "")
    assert message in answer.err


def test_a_rejected_schema_names_the_place(ask: Run, tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text('{"$ref": "https://example.org/x"}')
    answer = ask("run", "alpha", "--format", str(file), "hi")
    assert answer.status == 2
    assert "$ref" in answer.err


def test_an_image_is_checked_before_it_is_sent(ask: Run, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.png", tmp_path / "bad.png"
    good.write_bytes(picture(16, 8))
    bad.write_bytes(b"\xff\0")
    refused = ask("run", "alpha", "--image", str(bad), "What?")
    assert refused.status == 2
    assert "bad.png is no PDF, no text in UTF-8, and: not a PNG" in refused.err
    assert "cannot read" in ask("run", "alpha", "--image", str(tmp_path / "none.png"), "What?").err
    blind = ask("run", "alpha", "--image", str(good), "--image", str(good), "What?")
    assert blind.status == 2
    assert "reads text only" in blind.err
