"""The models of this machine: listed, chosen and removed."""

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
from tests.support.servers.managed import add_model
from tests.unit.cli.conftest import Run
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


@pytest.mark.parametrize("words", [("shipped",), ("shipped", "--yes"), ("mine", "shipped", "--yes")])
def test_the_built_in_model_stays(
    run: Run, own_settings: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    builtin = add_model(own_settings.parent, "shipped")
    mine = add_model(own_settings.parent / "data" / "models", "mine")
    monkeypatch.setattr("jan_serve.wiring.parts.builtin_model", lambda: builtin)
    monkeypatch.setattr("jan_serve.wiring.parts.BUILTIN_MODEL", "shipped")
    answer = run("rm", *words)
    assert (answer.status, answer.out) == (2, "")
    assert "The model `shipped` ships with jan-serve; it is not removed." in answer.err
    assert builtin.exists() and mine.exists()


def test_a_file_of_the_user_needs_confirmation(run: Run, own_settings: Path) -> None:
    mine = add_model(own_settings.parent / "data" / "models", "mine")
    answer = run("rm", "mine")
    assert answer.status == 2
    assert "Use --yes" in answer.err
    assert mine.exists()
    assert run("rm", "mine", "--yes").status == 0
    assert not mine.exists()


def test_an_unknown_name_is_explained_once(run: Run) -> None:
    answer = run("rm", "nope")
    assert answer.status == 2
    assert answer.err.count("jan-serve ls") == 1


def test_the_beginning_of_a_name_deletes_nothing(run: Run, own_settings: Path) -> None:
    mine = add_model(own_settings.parent / "data" / "models", "qwen3-0.6b-instruct")
    answer = run("rm", "qwen3-0.6b", "--yes")
    assert answer.status == 2
    assert "qwen3-0.6b-instruct" in answer.err
    assert mine.exists()
    assert run("rm", "qwen3-0.6b-instruct.gguf", "--yes").status == 0
    assert not mine.exists()


def test_a_variant_goes_and_its_model_stays(run: Run, own_settings: Path) -> None:
    models = own_settings.parent / "data" / "models"
    mine = add_model(models, "mine")
    variants = VariantIndex(models)
    variants.put(Variant(name="short", base="mine", created_at=0))
    answer = run("rm", "short:latest")
    assert (answer.status, answer.err) == (0, "Removed short (a variant of mine).\n")
    assert variants.all() == ()
    assert mine.exists()
    variants.put(Variant(name="short", base="mine", created_at=0))
    removed = json.loads(run("rm", "short", "--json").out)["removed"]
    assert removed == [{"name": "short", "files": [], "freed_bytes": 0}]
    variants.put(Variant(name="short", base="mine", created_at=0))
    assert run("rm", "short", "absent").status == 2
    assert variants.get("short") is not None
