"""StateFiles: what was written comes back, and nothing else does."""

from __future__ import annotations

import hashlib
import os
import random
import struct
from pathlib import Path

import numpy as np
import pytest

from jan_serve.engine.cache.state_files import StateFiles
from jan_serve.engine.cache.state_identity import state_key
from jan_serve.engine.llama.context import SequenceBytes
from jan_serve.engine.tokens import Tokens
from tests.unit.store.descriptors import no_descriptors


def ids(start: int, count: int = 100) -> Tokens:
    return np.arange(start, start + count, dtype=np.int32)


def state(fill: int, size: int = 1000) -> SequenceBytes:
    return np.full(size, fill, np.uint8)


def stored(root: Path, key: str = "key", budget: int = 1 << 20) -> StateFiles:
    return StateFiles(root, key, budget)


def the_file(root: Path) -> Path:
    [path] = root.glob("*/*.state")
    return path


@pytest.mark.parametrize("position", [0, 8, 39, 40, 47, 48, 55, 60, 500, -1])
def test_a_flipped_byte_anywhere_is_found(tmp_path: Path, position: int) -> None:
    stored(tmp_path).write(ids(1), state(7))
    path = the_file(tmp_path)
    content = bytearray(path.read_bytes())
    content[position] ^= 0x40
    path.write_bytes(content)
    files = stored(tmp_path)
    assert [files.read(file) for file in files] in ([], [None])


@pytest.mark.parametrize("length", [0, 10, 56, 100, 600])
def test_a_cut_file_is_left_out(tmp_path: Path, length: int) -> None:
    stored(tmp_path).write(ids(1), state(7))
    path = the_file(tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    assert list(stored(tmp_path)) == []


def forged(path: Path, tokens: Tokens, data: SequenceBytes, **lengths: int) -> None:
    """A state file whose digest is right, whatever its lengths say."""
    counts = {"n_tokens": len(tokens), "n_bytes": len(data)} | lengths
    tail = struct.pack("<QQ", counts["n_tokens"], counts["n_bytes"])
    body = tokens.tobytes() + data.tobytes()
    path.write_bytes(b"JANSTAT1" + hashlib.blake2b(tail + body, digest_size=32).digest() + tail + body)


@pytest.mark.parametrize(
    ("tokens", "data", "lengths"),
    [
        (ids(1, 384), state(0, 0), {}),
        (ids(1, 0), state(7), {}),
        (ids(1), state(7), {"n_tokens": 2**64 - 1}),
        (ids(1), state(7), {"n_bytes": 2**64 - 1}),
        (ids(1), state(7), {"n_tokens": 350, "n_bytes": 0}),
        (ids(1), state(7), {"n_tokens": 0, "n_bytes": 1400}),
    ],
    ids=["no state", "no tokens", "many tokens", "many bytes", "all tokens", "all state"],
)
def test_lengths_that_cannot_be_are_left_out_though_the_digest_is_right(
    tmp_path: Path, tokens: Tokens, data: SequenceBytes, lengths: dict[str, int]
) -> None:
    stored(tmp_path).write(ids(1), state(7))
    forged(the_file(tmp_path), tokens, data, **lengths)
    assert list(stored(tmp_path)) == []
    assert not [*tmp_path.glob("*/*.state")], "it is not found again by the next load"


def sparse(path: Path, n_tokens: int, n_bytes: int) -> None:
    """A file whose lengths agree, of zeros that take no room."""
    with path.open("wb") as file:
        file.write(b"JANSTAT1" + bytes(32) + struct.pack("<QQ", n_tokens, n_bytes))
        file.truncate(56 + 4 * n_tokens + n_bytes)


@pytest.mark.parametrize(
    ("n_tokens", "n_bytes"), [(1 << 38, 8), (2000, 1 << 40), (10_001, 8)], ids=["tokens", "state", "context"]
)
def test_a_length_of_the_files_choice_is_not_read(tmp_path: Path, n_tokens: int, n_bytes: int) -> None:
    stored(tmp_path).write(ids(1), state(7))
    sparse(tmp_path / "key" / "large.state", n_tokens, n_bytes)
    files = StateFiles(tmp_path, "key", 1 << 20, max_tokens=10_000)
    assert [len(file.tokens) for file in files] == [100]


def test_a_file_that_grew_is_not_read(tmp_path: Path) -> None:
    files = stored(tmp_path)
    files.write(ids(1), state(7))
    os.truncate(the_file(tmp_path), 1 << 42)
    [file] = files
    assert files.read(file) is None
    assert not file.path.exists()


@pytest.mark.parametrize("seed", range(8))
def test_drawn_damage_costs_the_damaged_file_only(tmp_path: Path, seed: int) -> None:
    """Bytes set, cut, added and exchanged, in each part of the file."""
    draw = random.Random(seed)
    files = stored(tmp_path)
    files.write(ids(1), state(7))
    whole, path = the_file(tmp_path).read_bytes(), the_file(tmp_path)
    files.write(ids(1000), state(8))
    for start, end in ((0, 8), (8, 40), (40, 48), (48, 56), (56, 456), (456, len(whole))):
        for _ in range(25):
            content, place = bytearray(whole), draw.randrange(start, end)
            match draw.randrange(4):
                case 0:
                    content[place] ^= draw.randrange(1, 256)
                case 1:
                    del content[place:]
                case 2:
                    content[place:place] = draw.randbytes(draw.randrange(1, 300))
                case _:
                    content[place:end] = draw.randbytes(end - place)
            path.write_bytes(content)
            again = stored(tmp_path)
            found = {int(file.tokens[0]): again.read(file) for file in list(again)}
            assert found.pop(1000) is not None
            assert content == whole or not any(data is not None for data in found.values())


def test_a_file_that_became_one_of_other_tokens_is_not_read(tmp_path: Path) -> None:
    files = stored(tmp_path)
    files.write(ids(1), state(7))
    [file] = files
    for tokens in (ids(2), ids(1, 90), ids(1, 110)):
        forged(file.path, tokens, state(7))
        assert files.read(file) is None


def test_a_file_that_went_away_is_no_error(tmp_path: Path) -> None:
    files = stored(tmp_path)
    files.write(ids(1), state(7))
    the_file(tmp_path).unlink()
    [file] = files
    assert files.read(file) is None


def test_foreign_files_stay_and_are_not_read(tmp_path: Path) -> None:
    root, folder = tmp_path / "root", tmp_path / "root" / "key"
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    (folder / "x.state").write_bytes(b"something else" * 100)
    outside = tmp_path / "outside.state"
    stored(tmp_path / "elsewhere").write(ids(1), state(7))
    the_file(tmp_path / "elsewhere").rename(outside)
    (folder / "link.state").symlink_to(outside)
    files = stored(root, budget=2000)
    assert list(files) == []
    assert files.write(ids(5), state(9))
    assert (folder / "notes.txt").read_text() == "mine"
    assert outside.exists()


def test_the_least_recently_used_goes_first_whatever_its_key(tmp_path: Path) -> None:
    first, second = stored(tmp_path, "a", 4500), stored(tmp_path, "b", 4500)
    first.write(ids(1), state(1))
    first.write(ids(2), state(2))
    second.write(ids(3), state(3))
    for age, start in enumerate((2, 3, 1)):
        for path in tmp_path.glob("*/*.state"):
            if any(f.path == path and f.tokens[0] == start for f in (*first, *second)):
                os.utime(path, (1000 + age, 1000 + age))
    second.write(ids(4), state(4))
    left = {int(file.tokens[0]) for key in "ab" for file in stored(tmp_path, key)}
    assert left == {1, 3, 4}


def test_what_exceeds_the_budget_alone_is_not_written(tmp_path: Path) -> None:
    files = stored(tmp_path, budget=1000)
    assert not files.write(ids(1), state(1))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_costs_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("a file where the folder should be")
    files = stored(tmp_path)
    assert not files.write(ids(1), state(1))
    assert list(files) == []


@pytest.mark.parametrize("size", [200_000, 5_000_000], ids=["read whole", "sampled"])
def test_the_key_follows_the_weights_and_the_layout(tmp_path: Path, size: int) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(size))
    key = state_key([path], "f16")
    assert state_key([path], "f16") == key
    assert state_key([path], "q8_0") != key
    times = path.stat()
    path.write_bytes(bytes(size - 100_000) + b"x" + bytes(99_999))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert state_key([path], "f16") != key


def test_what_a_killed_worker_was_writing_is_removed(tmp_path: Path) -> None:
    stored(tmp_path, "other").write(ids(1), state(7))
    old, new = (tmp_path / "other" / f"{name}.partial" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1000, 1000))
    stored(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


def test_what_cannot_be_read_for_lack_of_descriptors_is_read_later(tmp_path: Path) -> None:
    files = stored(tmp_path)
    files.write(ids(1), state(7))
    (file,) = files
    with no_descriptors():
        assert files.read(file) is None
    assert files.index.longest(ids(1)) is not None
    read = files.read(file)
    assert read is not None and read.tolist() == state(7).tolist()
