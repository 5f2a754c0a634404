"""The file of a vocabulary's tokens: whole or not used."""

from __future__ import annotations

import hashlib
import os
import stat
from array import array
from pathlib import Path
from typing import Any

import msgspec
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


@pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")
def test_it_is_for_nobody_else(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kept(tmp_path / "new").write(TOKENS)
    finally:
        os.umask(before)
    [path] = (tmp_path / "new").iterdir()
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


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


def file_of(body: bytes, magic: bytes = b"JANTOKS1") -> bytes:
    """As the store writes it."""
    return magic + hashlib.blake2b(body, digest_size=16).digest() + body


def body_of(lengths: bytes = array("I", [1, 0, 2]).tobytes(), **changed: Any) -> bytes:
    return msgspec.msgpack.encode(
        {"lengths": lengths, "text": b"abc", "controls": [0, 2], "eos": 2, **changed}
    )


UNUSABLE = {
    "empty": b"",
    "of a later format": file_of(body_of(), b"JANTOKS2"),
    "without a format": file_of(body_of())[8:],
    "no MessagePack": file_of(b"\xc1"),
    "of other fields": file_of(msgspec.msgpack.encode({"tokens": [b"a"]})),
    "nested without end": file_of(b"\x81\xa1x" + b"\x91" * 9_999),
    "of other types": file_of(body_of(text=["abc"])),
    "half a length": file_of(body_of(b"\1\0")),
    "fewer bytes than tokens": file_of(body_of(text=b"ab")),
    "more bytes than tokens": file_of(body_of(text=b"abcd")),
    "no tokens": file_of(body_of(b"", text=b"", controls=[], eos=0)),
    "a control token that is not there": file_of(body_of(controls=[3])),
    "a negative control token": file_of(body_of(controls=[-1])),
    "an end that is not there": file_of(body_of(eos=3)),
    "a negative end": file_of(body_of(eos=-1)),
}


@pytest.mark.parametrize("content", UNUSABLE.values(), ids=UNUSABLE)
def test_a_file_that_this_version_did_not_write_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.tokens"
    path.write_bytes(file_of(body_of()))
    assert kept(tmp_path).read() == VocabularyTokens([b"a", b"", b"bc"], [0, 2], 2)
    path.write_bytes(content)
    assert kept(tmp_path).read() is None
    kept(tmp_path).write(TOKENS)
    assert kept(tmp_path).read() == TOKENS


def test_no_file_takes_more_memory_than_a_vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path).write(TOKENS)
    [path] = tmp_path.iterdir()
    monkeypatch.setattr(kept_tokens, "_MOST_BYTES", path.stat().st_size)
    assert kept(tmp_path).read() == TOKENS
    monkeypatch.setattr(kept_tokens, "_MOST_BYTES", path.stat().st_size - 1)
    assert kept(tmp_path).read() is None


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
