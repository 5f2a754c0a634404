"""The models that the running server has in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.cli.commands.models import loaded as ps_module
from jan_serve.cli.commands.models.loaded import note_placement
from tests.support.processes import wait_until
from tests.unit.cli.conftest import Run

IDLE: dict[str, Any] = {
    "id": "m",
    "status": {"value": "loaded"},
    "memory": None,
    "context_length": 4096,
    "device": "CPU",
    "pinned": False,
    "ttl_s": None,
    "running": 0,
    "queued": 0,
}


class Server:
    """A client of a server that has these models."""

    url = "http://here"

    def __init__(self, *models: dict[str, Any], uptime_s: float = 59.9) -> None:
        self._answers = {
            "/health": {"version": "1", "pid": 7, "uptime_s": uptime_s, "state": "ready", "open_requests": 0},
            "/models": {"data": list(models)},
        }

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get(self, path: str) -> Any:
        return self._answers[path]


@pytest.fixture
def ps(run: Run, monkeypatch: pytest.MonkeyPatch) -> Any:
    def over(server: Server, *words: str) -> tuple[str, str]:
        def running_server(*_: object) -> Server:
            return server

        monkeypatch.setattr(ps_module, "running_server", running_server)
        answer = run("ps", *words)
        assert answer.status == 0
        return answer.out, answer.err

    return over


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({}, "m loaded 4096 CPU never"),
        ({"status": {"value": "loading"}}, "m loading CPU"),
        ({"status": {"value": "loading", "progress": {"value": 0.256}}}, "m loading, 26% CPU"),
        ({"status": {"value": "failed", "reason": "signal SIGSEGV"}}, "m failed: signal SIGSEGV CPU"),
        ({"memory": {"resident": 1_500_000, "total": 9}}, "m loaded 1.5 MB 4096 CPU never"),
        ({"memory": {"resident": None, "total": 2_000}}, "m loaded 2 kB 4096 CPU never"),
        ({"memory": {"resident": None, "total": None}}, "m loaded 0 B 4096 CPU never"),
        ({"context_length": None, "device": None}, "m loaded never"),
        ({"pinned": True, "ttl_s": 5.0}, "m loaded 4096 CPU never: pinned"),
        ({"ttl_s": 59.9}, "m loaded 4096 CPU in 59 s"),
        ({"ttl_s": 0}, "m loaded 4096 CPU in 0 s"),
        ({"ttl_s": 5400.0}, "m loaded 4096 CPU in 1 h 30 min"),
        ({"running": 2}, "m loaded 4096 CPU never 2 running"),
        ({"running": 2, "queued": 1}, "m loaded 4096 CPU never 2 running, 1 waiting"),
        ({"queued": 1}, "m loaded 4096 CPU never 0 running, 1 waiting"),
    ],
)
def test_a_row(ps: Any, changes: dict[str, Any], row: str) -> None:
    out, _ = ps(Server(IDLE | changes))
    assert " ".join(out.strip().splitlines()[-1].split()) == row


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(59.9, "59 s"), (60, "1 min 0 s"), (3_599, "59 min 59 s"), (3_600, "1 h 0 min"), (90_000, "1 d 1 h")],
)
def test_how_long_the_server_is_up(ps: Any, seconds: float, text: str) -> None:
    _, err = ps(Server(IDLE, uptime_s=seconds))
    assert err == f"http://here: ready, pid 7, up {text}\n"


def test_models_that_are_not_loaded_are_shown_on_request(ps: Any) -> None:
    unloaded = IDLE | {"id": "far", "status": {"value": "unloaded"}}
    out, err = ps(Server(unloaded))
    assert (out, "No model is loaded." in err) == ("", True)
    assert "far" in ps(Server(unloaded), "--all")[0]
    shown = json.loads(ps(Server(IDLE, unloaded), "--json")[0])
    assert [model["id"] for model in shown["models"]] == ["m"]
    assert shown["server"]["url"] == "http://here"


def noted(capsys: pytest.CaptureFixture[str], placement: Any) -> list[str]:
    note_placement({"id": "m", "placement": placement})
    return capsys.readouterr().err.splitlines()


def test_a_line_for_each_device_and_each_advice(capsys: pytest.CaptureFixture[str]) -> None:
    parts = [{"text": "main memory: experts"}, {"text": "CUDA0: blocks"}]
    found = noted(capsys, {"parts": parts, "advice": ["More memory."]})
    assert found == ["m:", "  main memory: experts", "  CUDA0: blocks", "  More memory."]


@pytest.mark.parametrize("placement", [None, {"parts": [{"text": "main memory: all"}], "advice": []}])
def test_a_model_on_one_device_is_in_the_table_already(
    capsys: pytest.CaptureFixture[str], placement: Any
) -> None:
    assert noted(capsys, placement) == []


def test_a_model_that_is_not_where_it_should_be_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    placement = {"parts": [{"text": "main memory: all"}], "advice": ["No accelerator."]}
    assert noted(capsys, placement) == ["m:", "  main memory: all", "  No accelerator."]


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
