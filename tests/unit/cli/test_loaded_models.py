"""ps, load and stop against a server with fake engines."""

from __future__ import annotations

import json

import pytest

from tests.support.processes import wait_until
from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def nothing_loaded(ask: Run) -> None:
    assert ask("stop", "--all", "--force").status == 0


def states(ask: Run) -> dict[str, str]:
    found = json.loads(ask("ps", "--all", "--json").out)
    return {model["id"]: model["status"]["value"] for model in found["models"]}


def test_load_show_and_stop(ask: Run) -> None:
    assert "alpha" not in ask("ps").out
    loaded = ask("load", "alpha")
    assert (loaded.status, loaded.out, loaded.err) == (0, "", "alpha is loaded.\n")
    shown = ask("ps")
    assert shown.out.splitlines()[1].split() == [
        "model",
        "status",
        "memory",
        "context",
        "device",
        "unloads",
        "requests",
    ]
    assert ["alpha", "loaded"] in [line.split()[:2] for line in shown.out.splitlines()]
    assert "beta-7b" not in shown.out
    stopped = ask("stop", "alpha")
    assert (stopped.status, stopped.err) == (0, "alpha is unloaded.\n")
    assert ask("stop", "alpha").err == "alpha was not loaded.\n"


def test_a_prefix_of_a_name_is_enough(ask: Run) -> None:
    assert json.loads(ask("load", "beta", "--json").out) == {"models": ["beta-7b"], "loaded": True}
    assert states(ask)["beta-7b"] == "loaded"
    assert json.loads(ask("stop", "beta", "--json").out) == {"unloaded": ["beta-7b"]}
    assert states(ask)["beta-7b"] == "unloaded"


def test_stop_all(ask: Run) -> None:
    assert ask("stop", "--all").err == "No model was loaded.\n"
    ask("load", "alpha")
    assert ask("stop", "--all").err == "alpha is unloaded.\n"


def test_keep_alive(ask: Run) -> None:
    assert ask("load", "alpha", "--keep-alive", "90m").status == 0
    assert "in 1 h " in ask("ps").out
    assert ask("run", "alpha", "--keep-alive", "-1", "!say x").status == 0
    assert "never" in ask("ps").out
    for words in (("load", "alpha"), ("run", "alpha", "x")):
        refused = ask(*words, "--keep-alive", "soon")
        assert refused.status == 2
        assert "keep_alive" in refused.err


def test_load_without_waiting(ask: Run) -> None:
    answer = ask("load", "alpha", "--no-wait")
    assert answer.status == 0
    assert answer.err == "alpha is loading: `jan-serve ps` shows the progress.\n"


def test_a_failed_load(ask: Run) -> None:
    answer = ask("load", "fail-load")
    assert (answer.status, answer.out) == (1, "")
    assert answer.err.startswith("error: ")
    assert "Download the file again" in answer.err
    wait_until(lambda: "failed: " in ask("ps").out)  # once its worker has ended


def test_the_server_in_json(ask: Run) -> None:
    found = json.loads(ask("ps", "--json").out)
    assert found["server"].keys() == {"url", "version", "pid", "uptime_s", "state", "open_requests"}
    assert "alpha" not in [model["id"] for model in found["models"]]


@pytest.mark.parametrize("words", [("load", "nope"), ("stop", "nope"), ("tokenize", "nope", "x")])
def test_unknown_names(ask: Run, words: tuple[str, ...]) -> None:
    answer = ask(*words)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err == "error: The model `nope` does not exist. `jan-serve ls` lists the models.\n"


def test_similar_names_are_suggested(ask: Run) -> None:
    assert "Did you mean alpha?" in ask("load", "alphi").err


@pytest.mark.parametrize("words", [("stop",), ("stop", "--all", "alpha"), ("load",)])
def test_wrong_use(ask: Run, words: tuple[str, ...]) -> None:
    answer = ask(*words)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err
