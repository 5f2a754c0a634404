"""Shipped files are found in a checkout, and neighbours of an installed package are not taken for them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import jan_serve.engine.llama
from jan_serve import resources
from jan_serve.cli.server import hardware


def test_a_checkout_and_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "app" / "jan_serve"
    package.mkdir(parents=True)
    monkeypatch.setattr(resources, "_IN_WHEEL", package / "_data")
    monkeypatch.setattr(resources, "_IN_CHECKOUT", tmp_path)
    beside = tmp_path / "models" / "builtin" / "jan-tiny.gguf"
    beside.parent.mkdir(parents=True)
    beside.write_bytes(b"")
    assert resources.builtin_model() is None
    (tmp_path / "pyproject.toml").write_text("")
    assert resources.builtin_model() == beside
    inside = package / "_data" / "models" / "builtin" / "jan-tiny.gguf"
    inside.parent.mkdir(parents=True)
    inside.write_bytes(b"")
    assert resources.builtin_model() == inside
    assert resources.resource("grammars", "absent.gbnf") is None
    assert resources.shipped_grammars() == {}
    (tmp_path / "grammars").mkdir()
    (tmp_path / "grammars" / "list.gbnf").write_text('root ::= "é"', encoding="utf-8")
    (tmp_path / "grammars" / "list.accept").write_text("é", encoding="utf-8")
    assert resources.shipped_grammars() == {"list": 'root ::= "é"'}


def test_the_bindings_of_a_bundled_wheel_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resources.bundled_packages() is None
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path)
    bundled = tmp_path / "_bundled"
    (bundled / "llama_cpp" / "lib").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path])
    importlib.reload(jan_serve.engine.llama)
    assert sys.path[0] == str(bundled)
    hardware.library_folder.cache_clear()
    assert hardware.library_folder() == bundled / "llama_cpp" / "lib"
    hardware.library_folder.cache_clear()
