"""ls: the models folder as it is."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from jan_serve.cli.main import main
from jan_serve.core.models import Variant
from jan_serve.resources import builtin_model
from jan_serve.store.index import VariantIndex
from tests.unit.store.gguf_builder import GgufBytes, string_key, uint_key

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


def test_a_model_that_sees_says_so_and_its_projector_is_no_model(
    capsys: pytest.CaptureFixture[str], own_folders: Path
) -> None:
    model = builtin_model()
    assert model is not None
    for name in (model.name, f"mmproj-{model.name}"):
        shutil.copy(model.with_name(name), own_folders)
    assert main(["ls", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["models"]
    assert (row["name"], row["modalities"], row["note"]) == ("jan-tiny", ["text", "vision"], "sees")


def test_the_variants_of_a_model_are_shown(capsys: pytest.CaptureFixture[str], own_folders: Path) -> None:
    (own_folders / "good.gguf").write_bytes(GgufBytes().build())
    VariantIndex(own_folders).put(Variant(name="short", base="good", created_at=0))
    assert main(["ls", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["models"]
    assert (row["aliases"], row["variants"]) == ([], ["short"])
    assert main(["ls"]) == 0
    assert "variants short" in capsys.readouterr().out


def test_base_models_are_noted(capsys: pytest.CaptureFixture[str], own_folders: Path) -> None:
    template = string_key("tokenizer.chat_template", "{{ messages }}")
    kinds = {"base": [], "chats": [template], "embeds": [uint_key("llama.pooling_type", 1)], "set": []}
    for name, keys in kinds.items():
        (own_folders / f"{name}.gguf").write_bytes(GgufBytes(keys=keys).build())
    with Path(os.environ["JAN_SERVE_CONFIG"]).open("a") as file:
        file.write('[models.set]\ntemplate = "chatml"\n')
    assert main(["ls", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert {row["name"]: (row["note"], row["has_chat_template"]) for row in shown["models"]} == {
        "base": ("base", False),
        "chats": ("", True),
        "embeds": ("", False),
        "set": ("", True),
    }
    assert shown["default"] in ("chats", "set")
