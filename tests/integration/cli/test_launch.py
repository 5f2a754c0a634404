"""`jan-serve launch` with a stand-in for the program, against a running server and one of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from jan_serve.cli.main import main
from tests.support.gguf.models import model_folder, tiny_llama
from tests.support.servers.served import serving

__all__ = ["model_folder", "tiny_llama"]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a script with a first line"),
]

STAND_IN = """#!{python}
import json, os, sys, urllib.request
settings = sys.argv[sys.argv.index("--settings") + 1]
body = json.dumps({{"model": "tiny-llama", "max_tokens": 4, "messages": [{{"role": "user", "content": "a"}}]}})
url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
request = urllib.request.Request(url, body.encode(), {{"content-type": "application/json"}})
with urllib.request.urlopen(request) as response:
    answer = json.load(response)
with open(settings) as file:
    written = json.load(file)
report = {{"argv": sys.argv[1:], "env": dict(os.environ), "settings": written, "answer": answer}}
with open({report!r}, "w") as file:
    json.dump(report, file)
sys.exit(7)
"""


@pytest.fixture(scope="module")
def url(tiny_llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """A server with one model."""
    with serving(tmp_path_factory.mktemp("launch"), "--port", "0", "--model", str(tiny_llama)) as server:
        yield server.url()


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the stand-in for Claude Code writes what it was started with."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    path = tmp_path / "report.json"
    program.write_text(STAND_IN.format(python=sys.executable, report=str(path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of the user")
    return path


def test_the_program_uses_the_running_server(
    url: str, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", "claude", "--url", url, "--", "-p", "hello"]) == 7
    found: dict[str, Any] = json.loads(report.read_text())
    assert found["argv"][2:] == ["-p", "hello"]
    assert found["env"]["ANTHROPIC_BASE_URL"] == url
    assert "ANTHROPIC_API_KEY" not in found["env"]
    assert found["settings"]["env"]["ANTHROPIC_MODEL"] == "tiny-llama"
    assert found["answer"]["usage"]["output_tokens"] <= 4
    assert not Path(found["argv"][1]).exists()
    shown = capsys.readouterr().err
    assert "claude needs about 32768" in shown
    assert "jan-serve launch claude --n-ctx 32768" in shown


def test_a_context_of_its_own(
    tiny_llama: Path, tmp_path: Path, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'data_dir = "data"\nmodels_dir = "{tiny_llama.parent}"\n')
    assert (
        main(["launch", "claude", "--model", "tiny-llama", "--n-ctx", "4096", "--config", str(config)]) == 7
    )
    found: dict[str, Any] = json.loads(report.read_text())
    assert found["settings"]["env"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "4096"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["emacs"], 2, "cannot start this"),
        (["codex"], 1, "codex is not installed"),
        (["claude", "--model", "absent"], 2, "no chat model with this name"),
    ],
)
def test_wrong_use_is_rejected(
    words: list[str], status: int, message: str, url: str, report: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["launch", *words, "--url", url]) == status
    assert message in capsys.readouterr().err
    assert not report.exists()
