"""Files of each kind, written two formats ago, are read; those of a later format stay as they are."""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jan_serve.core.calibration import Calibration
from jan_serve.core.models.listed_model import Variant
from jan_serve.store import calibrations, index, self_checks, variants
from jan_serve.store.calibrations import CalibrationIndex
from jan_serve.store.files.versioned_files import LaterVersion, RecordFiles, Steps, latest, upgrade
from jan_serve.store.index import FileRecord, ModelEntry, ModelIndex, ModelRecord, Source
from jan_serve.store.resolve import ModelResolver
from jan_serve.store.self_checks import SelfChecks
from jan_serve.store.variants import VariantIndex
from tests.unit.core.test_self_check import OLD
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

Kind = tuple[RecordFiles[Any], str, Callable[[Path], None], Callable[[Path], object]]
KINDS: dict[str, Kind] = {
    "records": (
        index.RECORDS,
        "version",
        lambda folder: ModelIndex(folder).put(RECORD),
        lambda folder: ModelIndex(folder).records().get("m"),
    ),
    "variants": (
        variants.VARIANTS,
        "version",
        lambda folder: VariantIndex(folder).put(VARIANT),
        lambda folder: VariantIndex(folder).get("mario"),
    ),
    "calibrations": (
        calibrations.CALIBRATIONS,
        "version",
        lambda folder: CalibrationIndex(folder).put(ENTRY, CALIBRATION),
        lambda folder: CalibrationIndex(folder).get(ENTRY),
    ),
    "self-checks": (
        self_checks.SELF_CHECKS,
        "format",
        lambda folder: SelfChecks(folder).put(OLD),
        lambda folder: SelfChecks(folder).before("1.0.0"),
    ),
}


def nothing(content: MutableMapping[str, Any]) -> None:
    """A step to a format that changed no field."""


def without(key: str, record: object) -> dict[str, Any] | None:
    """The fields but for the format's number."""
    fields: dict[str, Any] | None = msgspec.to_builtins(record)
    return None if fields is None else {name: value for name, value in fields.items() if name != key}


def of_later_format(path: Path, key: str) -> None:
    """Make it one that a later version wrote."""
    path.write_bytes(json.dumps({**json.loads(path.read_bytes()), key: 99, "new": [1]}).encode())


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*.json")}


@pytest.mark.parametrize("name", KINDS)
def test_what_was_written_two_formats_ago_is_read_and_stays(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, key, put, get = KINDS[name]
    put(tmp_path)
    expected, before = get(tmp_path), files(tmp_path)
    assert expected is not None
    known = dict(records.steps)
    ahead = {number: nothing for number in range(len(known) + 1, len(known) + 3)}
    monkeypatch.setattr(records, "steps", {**known, **ahead})
    assert without(key, get(tmp_path)) == without(key, expected)
    assert files(tmp_path) == before


@pytest.mark.parametrize("name", KINDS)
def test_what_a_later_version_wrote_is_left_alone(name: str, tmp_path: Path) -> None:
    _, key, put, get = KINDS[name]
    put(tmp_path)
    (path,) = files(tmp_path)
    of_later_format(path, key)
    later = files(tmp_path)
    assert get(tmp_path) is None
    assert files(tmp_path) == later


def test_a_record_of_a_later_version_is_not_replaced_by_the_facts_of_a_header(tmp_path: Path) -> None:
    """It has the source, digests and names of the model, which the later version needs again."""
    (tmp_path / "m.gguf").write_bytes(GgufBytes().build())
    index = ModelIndex(tmp_path)
    index.put(RECORD)
    (path,) = files(tmp_path)
    of_later_format(path, "version")
    later = files(tmp_path)
    resolver = ModelResolver(tmp_path, index=index)
    assert resolver.facts(resolver.resolve("m")).architecture
    assert files(tmp_path) == later


def rename(content: MutableMapping[str, Any]) -> None:
    """1 to 2."""
    content["port"] = content.pop("tcp_port", 1)


def double(content: MutableMapping[str, Any]) -> None:
    """2 to 3."""
    content["port"] *= 2


STEPS: Steps = {1: rename, 2: double}


@pytest.mark.parametrize(
    ("content", "version"),
    [
        ({"tcp_port": 5}, 1),
        ({"tcp_port": 5, "v": 1}, 1),
        ({"port": 5, "v": 2}, 2),
        ({"port": 10, "v": 3}, 3),
    ],
)
def test_every_version_comes_to_the_latest(content: dict[str, Any], version: int) -> None:
    assert upgrade(content, "v", STEPS) == version
    assert content == {"port": 10, "v": 3}
    assert upgrade(content, "v", STEPS) == latest(STEPS)


def test_without_steps_nothing_changes() -> None:
    content: dict[str, Any] = {"a": 1}
    assert upgrade(content, "v", {}) == 1
    assert content == {"a": 1}


def test_a_later_version_is_left_alone() -> None:
    content: dict[str, Any] = {"v": 4}
    with pytest.raises(LaterVersion, match="version 4; this jan-serve knows versions up to 3"):
        upgrade(content, "v", STEPS)
    assert content == {"v": 4}


@pytest.mark.parametrize("version", [0, -1, "2", 1.5, True, None])
def test_invalid_versions(version: object) -> None:
    with pytest.raises(ValueError, match="v must be a whole number from 1 on"):
        upgrade({"v": version}, "v", STEPS)
