"""The file of a vocabulary's tokens: whole or not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jan_serve.engine.constraint import kept_tokens
from jan_serve.engine.constraint.kept_tokens import KeptTokens, VocabularyTokens

TOKENS = VocabularyTokens([b"", b"a", "ü".encode(), b"\xff\x00", b"<|end|>" * 40], [0, 4], 4)


def kept(folder: Path, name: str = "model") -> KeptTokens:
    return KeptTokens(folder, lambda: name)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert kept(tmp_path / "new").read() is None
    kept(tmp_path / "new").write(TOKENS)
    assert kept(tmp_path / "new").read() == TOKENS
    assert kept(tmp_path / "new", "other").read() is None


@pytest.mark.parametrize("at", [0, 16, 40, -1])
def test_a_damaged_file_is_not_used(tmp_path: Path, at: int) -> None:
    kept(tmp_path).write(TOKENS)
    [path] = tmp_path.iterdir()
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)
    assert kept(tmp_path).read() is None
    path.write_bytes(content[:5])
    assert kept(tmp_path).read() is None
    kept(tmp_path).write(TOKENS)
    assert kept(tmp_path).read() == TOKENS


def test_those_not_used_for_longest_make_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tokens, "_MOST_FILES", 2)
    for age, name in enumerate(("a", "b")):
        kept(tmp_path, name).write(TOKENS)
        os.utime(tmp_path / f"{name}.tokens", (age, age))
    kept(tmp_path, "a").read()
    kept(tmp_path, "c").write(TOKENS)
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["a", "c"]


def test_a_disk_that_refuses_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    kept(tmp_path / "file").write(TOKENS)
    assert kept(tmp_path / "file").read() is None

    def fail() -> str:
        raise OSError("the model is gone")

    assert KeptTokens(tmp_path, fail).read() is None
    KeptTokens(tmp_path, fail).write(TOKENS)
