"""ls: the models folder as it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jan_serve.cli.main import main
from tests.unit.store.gguf_builder import GgufBytes, uint_key

pytestmark = pytest.mark.usefixtures("own_folders")


def test_ls(capsys: pytest.CaptureFixture[str], own_folders: Path) -> None:
    good = GgufBytes(keys=[uint_key("llama.context_length", 2048)]).build()
    (own_folders / "good.gguf").write_bytes(good)
    (own_folders / "bad\x1b[31m.gguf").write_bytes(b"nonsense")
    assert main(["ls", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    by_name = {row["name"]: row for row in shown["models"]}
    assert by_name["good"]["n_ctx_train"] == 2048
    assert by_name["good"]["architecture"] == "llama"
    assert by_name["good"]["size_bytes"] == len(good)
    assert "cannot be served" in by_name["bad\x1b[31m"]["note"]
    assert main(["ls"]) == 0
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out
    assert "bad\\x1b[31m" in captured.out
