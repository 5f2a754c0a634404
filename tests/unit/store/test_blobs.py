"""Uploads: checked digests, interrupted ones, models made of them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jan_serve.errors import InsufficientStorage, InvalidModel, InvalidRequest
from jan_serve.store.blobs import Blobs, digest_of
from jan_serve.store.index import ModelIndex
from tests.unit.store.gguf_builder import GgufBytes

pytestmark = pytest.mark.anyio

CONTENT = GgufBytes().build()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path, ModelIndex(tmp_path))


async def pieces(
    content: bytes = CONTENT, size: int = 100, error: Exception | None = None
) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]
    if error is not None:
        raise error


def kept(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / ".jan-serve" / "blobs"))


async def test_an_upload_is_kept_once_its_digest_is_right(blobs: Blobs, tmp_path: Path) -> None:
    assert blobs.path_of(SHA256) is None
    with pytest.raises(InvalidRequest, match="digest mismatch"):
        await blobs.receive(SHA256, 0, pieces(CONTENT[1:]))
    with pytest.raises(EOFError):
        await blobs.receive(SHA256, 0, pieces(error=EOFError("gone")))
    assert kept(tmp_path) == []
    await blobs.receive(SHA256, len(CONTENT), pieces())
    path = blobs.path_of(SHA256)
    assert path is not None
    assert path.read_bytes() == CONTENT
    assert kept(tmp_path) == [f"sha256-{SHA256}"]


async def test_there_must_be_room(blobs: Blobs) -> None:
    with pytest.raises(InsufficientStorage):
        await blobs.receive(SHA256, 1 << 60, pieces())


async def test_uploads_that_nobody_used_are_deleted_after_a_day(blobs: Blobs, tmp_path: Path) -> None:
    await blobs.receive(SHA256, 0, pieces())
    path = blobs.path_of(SHA256)
    assert path is not None
    os.utime(path, (1, 1))
    other = b"other"
    await blobs.receive(hashlib.sha256(other).hexdigest(), 0, pieces(other))
    assert blobs.path_of(SHA256) is None
    assert len(kept(tmp_path)) == 1


async def test_a_model_takes_the_file(blobs: Blobs, tmp_path: Path) -> None:
    await blobs.receive(SHA256, 0, pieces())
    record = blobs.make_model(SHA256, "ns/mine:1b")
    assert (record.name, record.files[0].sha256) == ("created/ns/mine-1b", SHA256)
    file = tmp_path / "created" / "ns" / "mine-1b.gguf"
    assert file.read_bytes() == CONTENT
    assert kept(tmp_path) == []
    # The digest is known still: the file is the model's.
    assert blobs.path_of(SHA256) == file
    with pytest.raises(InvalidRequest, match="already"):
        blobs.make_model(SHA256, "ns/mine:1b")
    file.write_bytes(b"changed")
    assert blobs.path_of(SHA256) is None


async def test_what_is_no_model(blobs: Blobs, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="was not uploaded"):
        blobs.make_model(SHA256, "x")
    junk = hashlib.sha256(b"junk").hexdigest()
    await blobs.receive(junk, 0, pieces(b"junk"))
    with pytest.raises(InvalidModel):
        blobs.make_model(junk, "x")
    await blobs.receive(SHA256, 0, pieces())
    for name in ("../x", "/x", "a//b", ".hidden", "con", "a\0b", "x" * 300):
        with pytest.raises(InvalidRequest):
            blobs.make_model(SHA256, name)
    assert not (tmp_path / "created").exists()


def test_digests() -> None:
    assert digest_of(f"sha256:{SHA256}") == digest_of(f"sha256-{SHA256}") == SHA256
    for text in (
        SHA256,
        f"sha256:{SHA256.upper()}",
        "sha256:",
        "sha256:../../etc/passwd",
        f"md5:{SHA256}",
        f"sha256:{SHA256}\n",
    ):
        with pytest.raises(InvalidRequest):
            digest_of(text)
