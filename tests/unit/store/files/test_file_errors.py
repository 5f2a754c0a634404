"""When a disk counts as full, and errors of disks in words."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from jan_serve.config.config_file import read_config_file
from jan_serve.core.models import Variant
from jan_serve.errors import InsufficientStorage, JanServeError, StoreError, Unavailable
from jan_serve.store.default_model import ChosenModel
from jan_serve.store.files import file_errors
from jan_serve.store.files.file_errors import check_room, storage_error
from jan_serve.store.gguf.gguf_header import read_gguf_header
from jan_serve.store.index import FileRecord, ModelIndex, ModelRecord, Source
from jan_serve.store.resolve import ModelResolver
from jan_serve.store.variants import VariantIndex
from jan_serve.wiring.user_files import GrammarFiles, read_template
from tests.unit.store.descriptors import no_descriptors
from tests.unit.store.gguf_builder import GgufBytes

MB = 1 << 20


@pytest.mark.parametrize(
    ("total", "free", "wanted", "fits"),
    [
        (100_000 * MB, 1000 * MB, 744 * MB, True),
        (100_000 * MB, 1000 * MB, 744 * MB + 1, False),
        (1000 * MB, 100 * MB, 80 * MB, True),
        (1000 * MB, 100 * MB, 80 * MB + 1, False),
        (1000 * MB, 0, 0, False),
    ],
)
def test_some_room_is_spared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, free: int, wanted: int, fits: bool
) -> None:
    asked: list[Path] = []

    def disk_usage(path: Path) -> SimpleNamespace:
        asked.append(path)
        return SimpleNamespace(total=total, free=free)

    monkeypatch.setattr(file_errors.shutil, "disk_usage", disk_usage)
    if fits:
        check_room(tmp_path / "absent" / "deeper", wanted)
    else:
        with pytest.raises(InsufficientStorage, match="GB are free on the disk of"):
            check_room(tmp_path / "absent" / "deeper", wanted)
    assert asked == [tmp_path], "the nearest folder that exists"


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (errno.ENOSPC, InsufficientStorage, "The disk is full"),
        (errno.EDQUOT, InsufficientStorage, "The disk is full"),
        (errno.EFBIG, InsufficientStorage, "The disk is full"),
        (errno.EACCES, StoreError, "Cannot write to /models: Permission denied."),
    ],
)
def test_errors(code: int, kind: type[StoreError], says: str) -> None:
    error = storage_error(OSError(code, os.strerror(code)), Path("/models"))
    assert type(error) is kind
    assert says in error.message
    assert "Cannot write to /models: odd." in storage_error(OSError("odd"), Path("/models")).message
    with pytest.raises(Unavailable, match="cannot open more files now"):
        storage_error(OSError(errno.EMFILE, "Too many open files"), Path("/models"))


if sys.platform == "win32":
    pytest.skip("limits descriptors", allow_module_level=True)


RECORD = ModelRecord(
    name="m",
    source=Source(kind="hub", name="org/repo", revision="0" * 40),
    files=(FileRecord(path="m.gguf", size_bytes=7, sha256="0" * 64),),
    projector=None,
    modified_ns=5,
    added_at=1.5,
    aliases=("m",),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m.gguf").write_bytes(GgufBytes().build())
    (tmp_path / "g.gbnf").write_text('root ::= "a"', encoding="utf-8")
    ModelIndex(tmp_path).put(RECORD)
    VariantIndex(tmp_path).put(Variant(name="mario", base="m", created_at=1.5, system="Be Mario."))
    return tmp_path


READS: dict[str, Callable[[Path], object]] = {
    "a list of models": lambda folder: ModelResolver(folder).entries(),
    "a model by name": lambda folder: ModelResolver(folder).resolve("m"),
    "a header": lambda folder: read_gguf_header(folder / "m.gguf"),
    "records": lambda folder: ModelIndex(folder).records(),
    "variants": lambda folder: VariantIndex(folder).all(),
    "a grammar": lambda folder: GrammarFiles({}, folder)["g"],
    "the default model": lambda folder: ChosenModel(folder).name(),
    "settings": lambda folder: read_config_file(folder / "m.gguf", required=False),
    "a template": lambda folder: read_template(folder / "g.gbnf"),
}


@pytest.mark.parametrize("what", READS)
def test_what_cannot_be_opened_now_is_not_called_missing_or_damaged(folder: Path, what: str) -> None:
    with no_descriptors(), pytest.raises(Unavailable) as caught:
        READS[what](folder)
    assert "cannot open more files now" in caught.value.message


def test_nothing_is_forgotten(folder: Path) -> None:
    """A record or variant that could not be read once is read again, though its file has not changed."""
    index, variants = ModelIndex(folder), VariantIndex(folder)
    resolver = ModelResolver(folder, index=index, variants=variants)
    index.put(msgspec.structs.replace(RECORD, name="other"))
    for _ in range(2):
        with no_descriptors(), pytest.raises(JanServeError):
            resolver.entries()
    assert set(index.records()) == {"m", "other"}
    assert [variant.name for variant in variants.all()] == ["mario"]
    assert resolver.resolve("mario").name == "m"
