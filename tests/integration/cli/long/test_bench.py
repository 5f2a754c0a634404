"""`jan-serve bench` and `certify`: they measure a real model, and keep the result beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jan_serve.cli.main import main
from jan_serve.resources import builtin_model
from models.recipe.fixtures import write_tiny_llama
from tests.integration.http.support import serving_models
from tests.support.clients.raw_http import get


def test_it_measures_and_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAN_SERVE_DATA_DIR", str(tmp_path / "data"))
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path, model) as served:
        url = served.url()
        assert main(["bench", "--clients", "2", "--url", url, "--json"]) == 0
        (here,) = json.loads(capsys.readouterr().out).values()
        assert here["model"] == "jan-tiny"
        assert [900 < first["tokens"] < 1100 for first in here["first"]] == [True]
        assert all(first["seconds"] > 0 for first in here["first"])
        assert sorted(here["writes"]) == ["1", "2"]
        assert min(here["writes"].values()) > 0
        assert here["memory"] > 0
        assert here["bandwidth_share"] > 0
        (listed,) = get(url, "/models").json()["data"]
        assert here["bandwidth_share"] == pytest.approx(
            listed["memory"]["read_per_token"] * here["writes"]["1"] / here["bandwidth"]
        )
        assert main(["bench", "--clients", "2", "--url", url, "--against", url]) == 0
        printed = capsys.readouterr().out
    assert url in printed
    assert "2 clients" in printed
    assert printed.count("tokens/s") == 6


MARKS = {
    "schema kept": 4,  # by the grammar
    "schema right": 4,  # it copies names and numbers
    "schema after a thought": 4,
    "1 tool": 4,  # it was trained on up to three
    "10 tools": 0,
    "forced call": 4,
    "tool result": 4,
    "turns": 0,  # it was trained on other words
    "infill": 0,
    "needle": 0,  # it was trained on up to 500 tokens
}
"""What the card of the built-in model lets expect. Fifty tools do not fit; half of the colours are named."""


def test_a_certificate_stays_beside_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAN_SERVE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("JAN_SERVE_MODELS_DIR", str(tmp_path / "models"))
    model = builtin_model()
    assert model is not None
    with serving_models(tmp_path, model) as served:
        url = served.url()
        assert main(["certify", "jan-tiny", "--url", url, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert main(["connect", "codex", "--model", "jan-tiny", "--url", url]) == 0
        noted = capsys.readouterr().err
        listed = get(url, "/models").json()["data"]
    assert {mark["task"]: mark["right"] for mark in found["marks"] if mark["task"] != "picture"} == MARKS
    assert found["verdicts"]["extraction"] == "Structured extraction at 2k: yes"
    assert found["verdicts"]["chat"] == "Chat at 2k: no, turns 0 of 4"
    assert found["verdicts"]["codex"] == "Codex: no, 2,048 tokens of context (32,768 are needed)"
    assert "as `jan-serve certify` found it: Codex: no, 2,048 tokens" in noted
    assert [model["enough_for"] for model in listed] == [list(found["verdicts"].values())]
    assert main(["show", "jan-tiny", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["enough_for"] == list(found["verdicts"].values())


def test_random_weights_are_right_only_where_a_grammar_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAN_SERVE_DATA_DIR", str(tmp_path / "data"))
    model = tmp_path / "random.gguf"
    write_tiny_llama(model, n_ctx=4096)
    with serving_models(tmp_path, model) as served:
        assert main(["certify", "random", "--url", served.url(), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    marks = {mark["task"]: (mark["right"], mark["of"]) for mark in found["marks"]}
    right = {task for task, (number, _) in marks.items() if number}
    assert right == {"schema kept", "forced call"}
    assert {number == of for number, of in marks.values()} == {True, False}
    assert all(": no, " in verdict for verdict in found["verdicts"].values())
