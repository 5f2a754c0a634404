"""Completion with the Tab key: scripts for shells, and completed names."""

from __future__ import annotations

from pathlib import Path

import pytest

from jan_serve.cli.arguments import complete_catalogue, complete_model
from tests.support.servers.managed import add_model
from tests.unit.cli.conftest import Run


@pytest.fixture
def models(own_settings: Path) -> Path:
    """The models folder of the test's settings, with one model and one whose name a shell would run."""
    folder = own_settings.parent / "data" / "models"
    add_model(folder, "my-model")
    add_model(folder, "$(reboot)")
    return folder


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_scripts(run: Run, shell: str) -> None:
    answer = run("completion", shell)
    assert (answer.status, answer.err) == (0, "")
    assert "_JAN_SERVE_COMPLETE" in answer.out


def test_other_shells(run: Run) -> None:
    assert run("completion", "tcsh").status == 2
    assert run("completion").status == 2
    assert run("completion", "powershell", "--install").status == 2


def test_installing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for _ in range(2):
        answer = run("completion", "bash", "--install")
        assert (answer.status, answer.out) == (0, "")
    assert (tmp_path / ".bashrc").read_text().count("jan-serve.sh") == 1


def test_names(models: Path) -> None:
    assert complete_model("my") == ["my-model"]
    assert "$(reboot)" not in complete_model("")
    assert "qwen3-4b" in complete_catalogue("qwen3")


def test_names_where_settings_are_wrong(own_settings: Path) -> None:
    own_settings.write_text("nonsense = 1\n")
    assert complete_model("") == []


def test_serve_is_not_started_by_the_tab_key(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_JAN_SERVE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "jan-serve tok")
    monkeypatch.setenv("COMP_CWORD", "1")
    answer = run()
    assert (answer.status, answer.out) == (0, "tokenize\n")
