"""use: the model of requests that name none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jan_serve.cli.main import main
from tests.unit.store.gguf_builder import GgufBytes, string_key

pytestmark = pytest.mark.usefixtures("own_folders")


@pytest.fixture
def models(own_folders: Path) -> Path:
    content = GgufBytes(keys=[string_key("tokenizer.chat_template", "{{ messages }}")]).build()
    for name in ("first", "second"):
        (own_folders / f"{name}.gguf").write_bytes(content)
    return own_folders


def default(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["use", "--json"]) == 0
    return json.loads(capsys.readouterr().out)["default"]


@pytest.mark.usefixtures("models")
def test_a_model_is_the_default_until_another_is_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    before = default(capsys)
    for name in ("second", "first"):
        assert main(["use", name]) == 0
        assert capsys.readouterr().out == f"{name} (chosen with `jan-serve use`)\n"
        assert default(capsys) == name
    assert main(["use", "--last"]) == 0
    capsys.readouterr()
    assert default(capsys) == before


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("words", "says"), [(["nothing"], "does not exist"), (["first", "--last"], "--last takes no NAME")]
)
def test_wrong_use(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["use", *words]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.usefixtures("models")
def test_a_configured_default_is_not_overruled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAN_SERVE_MODEL", "second")
    assert main(["use", "first"]) == 2
    assert "The setting `model` makes second the default." in capsys.readouterr().err
    assert default(capsys) == "second"
