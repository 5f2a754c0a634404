"""Small files: written atomically, errors at them, records."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from jan_serve.config.config_file import read_config_file
from jan_serve.core.measurements import Calibration
from jan_serve.core.models import Variant
from jan_serve.errors import InsufficientStorage, JanServeError, StoreError, Unavailable
from jan_serve.store.files import LaterFormat, check_format, check_room, storage_error, write_atomically
from jan_serve.store.gguf.gguf_header import read_gguf_header
from jan_serve.store.index import FileRecord, ModelEntry, ModelIndex, ModelRecord, Source, VariantIndex
from jan_serve.store.measurements import CalibrationIndex, SelfChecks
from jan_serve.store.model_names import ChosenModel
from jan_serve.store.resolve import ModelResolver
from jan_serve.wiring.user_files import GrammarFiles, read_template
from tests.unit.core.test_measurements import OLD
from tests.unit.store.descriptors import no_descriptors
from tests.unit.store.gguf_builder import GgufBytes


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_creates_folders_and_replaces_content(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    for content in (b"one", b"", b"two\r\n"):
        write_atomically(path, content)
        assert path.read_bytes() == content
    assert names(path.parent) == ["file"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o100640])
def test_the_permissions_are_set(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.touch(0o666)
    write_atomically(path, b"x", mode=mode)
    assert path.stat().st_mode & 0o7777 == mode & 0o7777


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_is_replaced_and_its_target_stays(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert (target.read_bytes(), link.read_bytes(), link.is_symlink()) == (b"old", b"new", False)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_leaves_the_old_content_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError("broken disk")

    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="broken disk"):
        write_atomically(path, b"new")
    assert (path.read_bytes(), names(tmp_path)) == (b"old", ["file"])


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

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
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
    resolver = ModelResolver(folder, index=index)
    index.put(msgspec.structs.replace(RECORD, name="other"))
    for _ in range(2):
        with no_descriptors(), pytest.raises(JanServeError):
            resolver.entries()
    assert set(index.records()) == {"m", "other"}
    assert [variant.name for variant in variants.all()] == ["mario"]
    assert resolver.resolve("mario").name == "m"


ENTRY = ModelEntry("m", Path("m.gguf"), 7, 5, "models folder")
VARIANT = Variant(name="mario", base="m", created_at=1.5, system="Be Mario.")
CALIBRATION = Calibration(
    temperature=1.5, examples=10, accuracy=0.5, loss_before=1.0, loss_after=0.5, at_bound=False
)

Kind = tuple[str, Callable[[Path], None], Callable[[Path], object]]
KINDS: dict[str, Kind] = {
    "records": (
        "version",
        lambda folder: ModelIndex(folder).put(RECORD),
        lambda folder: ModelIndex(folder).records().get("m"),
    ),
    "variants": (
        "version",
        lambda folder: VariantIndex(folder).put(VARIANT),
        lambda folder: VariantIndex(folder).get("mario"),
    ),
    "calibrations": (
        "version",
        lambda folder: CalibrationIndex(folder).put(ENTRY, CALIBRATION),
        lambda folder: CalibrationIndex(folder).get(ENTRY),
    ),
    "self-checks": (
        "format",
        lambda folder: SelfChecks(folder).put(OLD),
        lambda folder: SelfChecks(folder).before("1.0.0"),
    ),
}


def of_later_format(path: Path, key: str, **fields: object) -> None:
    """Make it one that a later version wrote."""
    path.write_bytes(json.dumps({**json.loads(path.read_bytes()), key: 99, "new": [1], **fields}).encode())


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*.json")}


@pytest.mark.parametrize("name", KINDS)
def test_what_a_later_version_wrote_is_left_alone(name: str, tmp_path: Path) -> None:
    key, put, get = KINDS[name]
    put(tmp_path)
    (path,) = files(tmp_path)
    of_later_format(path, key)
    later = files(tmp_path)
    assert get(tmp_path) is None
    assert files(tmp_path) == later


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"name": 1}', b'{"name": "x"}', b'{"version": 99, "format": 99}', b"\xff\xfe",
     b'{"x": ' * 100_000, b" " * (5 << 20)],
    ids=["empty", "cut", "list", "null", "type", "fields missing", "later", "no UTF-8", "deep", "large"],
)  # fmt: skip
@pytest.mark.parametrize("name", KINDS)
def test_damage_costs_one_record(name: str, content: bytes, tmp_path: Path) -> None:
    _, put, get = KINDS[name]
    put(tmp_path)
    expected = get(tmp_path)
    (path,) = files(tmp_path)
    beside = path.with_name("0.json")
    beside.write_bytes(content)
    assert get(tmp_path) == expected
    beside.unlink()
    path.write_bytes(content)
    assert get(tmp_path) is None
    assert path.read_bytes() == content
    put(tmp_path)
    assert get(tmp_path) == expected


@pytest.mark.parametrize("fields", [{}, {"files": {"m": 7}}], ids=["more fields", "another type"])
def test_a_record_of_a_later_version_is_not_replaced_by_the_facts_of_a_header(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    """It has the source, digests and names of the model, which the later version needs again."""
    (tmp_path / "m.gguf").write_bytes(GgufBytes().build())
    index = ModelIndex(tmp_path)
    index.put(RECORD)
    (path,) = files(tmp_path)
    of_later_format(path, "version", **fields)
    later = files(tmp_path)
    resolver = ModelResolver(tmp_path, index=index)
    assert resolver.facts(resolver.resolve("m")).architecture
    assert files(tmp_path) == later


@pytest.mark.parametrize("content", [{"a": 1}, {"v": 1}])
def test_the_first_format_needs_no_number(content: dict[str, object]) -> None:
    check_format(content, "v")


def test_a_later_format_is_not_an_invalid_one() -> None:
    with pytest.raises(LaterFormat, match="version 4; this jan-serve knows versions up to 1"):
        check_format({"v": 4}, "v")


@pytest.mark.parametrize("number", [0, -1, "2", 1.5, True, None])
def test_invalid_formats(number: object) -> None:
    with pytest.raises(ValueError, match="v must be a whole number from 1 on"):
        check_format({"v": number}, "v")
