"""import: lists the models of other programs, and links those that are chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Ran, Run
from tests.unit.store.gguf_builder import GgufBytes, Tensor
from tests.unit.store.imports.support import COMMIT, MODEL, write


@pytest.fixture
def lmstudio(tmp_path: Path, own_folders: Path) -> Path:
    """A models folder of LM Studio, with two models and a file that is none."""
    folder = tmp_path / "theirs"
    write(folder / "pub" / "A-GGUF" / "a-Q8_0.gguf", MODEL)
    write(folder / "pub" / "B-GGUF" / "b-Q8_0.gguf", GgufBytes(tensors=(Tensor("x"),)).build())
    write(folder / "pub" / "Bad-GGUF" / "bad-Q8_0.gguf", b"nonsense")
    return folder


def take(run: Run, folder: Path, *words: str) -> Ran:
    return run("import", "--from", "lmstudio", "--folder", str(folder), *words)


def states(answer: Ran) -> dict[str, Any]:
    return {row["name"].rpartition("/")[2]: row["state"] for row in json.loads(answer.out)["models"]}


A = "pub/A-GGUF/a-Q8_0"


def test_without_a_name_models_are_listed(run: Run, lmstudio: Path, own_folders: Path) -> None:
    answer = take(run, lmstudio)
    assert answer.status == 0
    assert A in answer.out and "unusable: " in answer.out
    assert "`jan-serve import NAME` links one model" in answer.err
    assert states(take(run, lmstudio, "--json")) == {"a-Q8_0": "new", "b-Q8_0": "new", "bad-Q8_0": "unusable"}
    assert list(own_folders.rglob("*.gguf")) == []


def test_the_chosen_model_is_linked_once(run: Run, lmstudio: Path, own_folders: Path) -> None:
    assert states(take(run, lmstudio, A, "--json"))["a-Q8_0"] == "imported"
    linked = own_folders / f"{A}.gguf"
    assert linked.read_bytes() == MODEL
    assert [path.name for path in own_folders.rglob("*.gguf")] == ["a-Q8_0.gguf"]
    again = take(run, lmstudio, A, "--json")
    assert (again.status, states(again)["a-Q8_0"]) == (0, "already here")
    assert states(take(run, lmstudio, "--all", "--json")) == {
        "a-Q8_0": "already here",
        "b-Q8_0": "imported",
        "bad-Q8_0": "unusable",
    }


def test_of_two_models_of_one_name_the_first_is_imported(
    run: Run, tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two programs may have a file of one repository."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    write(tmp_path / ".lmstudio" / "models" / "pub" / "A-GGUF" / "a-Q8_0.gguf", MODEL)
    repository = tmp_path / "hub" / "models--pub--A-GGUF"
    write(repository / "refs" / "main", COMMIT)
    write(repository / "snapshots" / COMMIT / "a-Q8_0.gguf", MODEL)
    words = ("import", "--from", "lmstudio", "--from", "hf", "--all", "--json")
    for expected in (["imported", "unusable"], ["already here", "unusable"]):
        answer = run(*words)
        rows = json.loads(answer.out)["models"]
        assert ([row["name"] for row in rows], answer.status, answer.err) == ([A, A], 0, "")
        assert [row["state"] for row in rows] == expected
        assert rows[1]["reason"] == "another file has its name here"


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("none",), 2, "`none` was not found in other programs"),
        ((A, "none"), 2, "`none` was not found in other programs"),
        (("pub/Bad-GGUF/bad-Q8_0",), 1, "`pub/Bad-GGUF/bad-Q8_0` cannot be imported: "),
    ],
)
def test_what_cannot_be_chosen_imports_nothing(
    run: Run, lmstudio: Path, own_folders: Path, words: tuple[str, ...], status: int, message: str
) -> None:
    answer = take(run, lmstudio, *words)
    assert (answer.status, answer.out) == (status, "")
    assert message in answer.err
    assert list(own_folders.rglob("*.gguf")) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--from", "winamp"), "Cannot import from 'winamp'"),
        (("--folder", "x"), "--folder requires exactly one --from"),
        (("--from", "jan", "--from", "hf", "--folder", "x"), "--folder requires exactly one --from"),
    ],
)
def test_wrong_use(run: Run, own_folders: Path, words: tuple[str, ...], message: str) -> None:
    answer = run("import", *words)
    assert (answer.status, answer.out) == (2, "")
    assert message in answer.err


def test_nothing_found_names_the_folders(run: Run, tmp_path: Path, own_folders: Path) -> None:
    answer = take(run, tmp_path / "none")
    assert answer.status == 0
    assert f"LM Studio: {tmp_path / 'none'}" in answer.err


def test_a_name_that_two_programs_have_is_the_usable_one(
    run: Run, tmp_path: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program's copy of the same name is damaged, or is not taken because the name is taken."""
    home = tmp_path / "home"
    damaged = write(home / ".lmstudio" / "models" / "pub" / "A-GGUF" / "a-Q8_0.gguf", b"nonsense")
    good = write(home / ".cache" / "lm-studio" / "models" / "pub" / "A-GGUF" / "a-Q8_0.gguf", MODEL)
    monkeypatch.setenv("HOME", str(home))
    for _ in range(2):
        answer = run("import", "--from", "lmstudio", A)
        assert answer.status == 0, answer.err
        assert (own_folders / f"{A}.gguf").samefile(good)
    assert damaged.read_bytes() == b"nonsense"
