"""Files that are damaged, or of a later format, cost their own record alone, and stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from jan_serve.core.measurements import Calibration
from jan_serve.core.models import Variant
from jan_serve.store.calibrations import CalibrationIndex
from jan_serve.store.files.record_files import LaterFormat, check_format
from jan_serve.store.index import FileRecord, ModelEntry, ModelIndex, ModelRecord, Source
from jan_serve.store.resolve import ModelResolver
from jan_serve.store.self_checks import SelfChecks
from jan_serve.store.variants import VariantIndex
from tests.unit.core.test_measurements import OLD
from tests.unit.store.gguf_builder import GgufBytes

RECORD = ModelRecord(
    name="m",
    source=Source(kind="hub", name="org/repo", revision="0" * 40),
    files=(FileRecord(path="m.gguf", size_bytes=7, sha256="0" * 64),),
    projector=None,
    modified_ns=5,
    added_at=1.5,
)
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
