"""What was measured on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from jan_serve.core.measurements import Calibration
from jan_serve.errors import ModelNotFound, StoreError, Unavailable
from jan_serve.store.index import STATE_FOLDER
from jan_serve.store.library import ModelLibrary
from jan_serve.store.measurements import CalibrationIndex, SelfChecks
from jan_serve.store.resolve import ModelResolver
from tests.support.servers.managed import add_model
from tests.unit.core.test_measurements import OLD, changed
from tests.unit.store.descriptors import no_descriptors


def test_each_version_keeps_its_last_run(tmp_path: Path) -> None:
    checks = SelfChecks(tmp_path)
    assert (checks.all(), checks.before("1.0.0")) == ((), None)
    checks.put(OLD)
    assert checks.before("1.0.0") == OLD  # its own, where there is no other
    later = changed()
    checks.put(later)
    checks.put(msgspec.structs.replace(later, at=300.0))
    assert [(check.version, check.at) for check in SelfChecks(tmp_path).all()] == [
        ("1.0.0", 100.0),
        ("1.1.0", 300.0),
    ]
    assert checks.before("1.1.0") == OLD
    assert checks.before("1.2.0") == msgspec.structs.replace(later, at=300.0)
    back = checks.before("1.0.0")
    assert back is not None and back.version == "1.1.0"  # after a downgrade


def test_names_of_versions_are_no_paths(tmp_path: Path) -> None:
    checks = SelfChecks(tmp_path)
    checks.put(msgspec.structs.replace(OLD, version="../../1.0 (dev)"))
    assert [path.name for path in (tmp_path / "selfcheck").iterdir()] == [".._.._1.0__dev_.json"]
    assert len(checks.all()) == 1


SURE = Calibration(
    temperature=1.5, examples=20, accuracy=0.75, loss_before=0.9, loss_after=0.7, at_bound=False
)


def library_of(folder: Path) -> ModelLibrary:
    def no_hub() -> None:
        raise AssertionError

    return ModelLibrary(ModelResolver(folder), folder, no_hub)  # pyright: ignore[reportArgumentType]


def records(folder: Path) -> list[Path]:
    return list((folder / STATE_FOLDER / "calibrations").glob("*"))


def test_a_calibration_survives_a_restart(tmp_path: Path) -> None:
    add_model(tmp_path, "org/chat")
    assert library_of(tmp_path).calibration("chat") == ("org/chat", None)
    assert library_of(tmp_path).keep_calibration("chat", SURE) == "org/chat"
    assert library_of(tmp_path).calibration("chat") == ("org/chat", SURE)
    library_of(tmp_path).keep_calibration("chat", None)
    library_of(tmp_path).keep_calibration("chat", None)
    assert library_of(tmp_path).calibration("chat") == ("org/chat", None)
    with pytest.raises(ModelNotFound):
        library_of(tmp_path).keep_calibration("other", SURE)


def test_it_is_deleted_with_its_model(tmp_path: Path) -> None:
    add_model(tmp_path, "chat")
    add_model(tmp_path, "other")
    library = library_of(tmp_path)
    library.keep_calibration("chat", SURE)
    library.keep_calibration("other", SURE)
    library.remove("chat")
    assert len(records(tmp_path)) == 1
    assert library.calibration("other") == ("other", SURE)


def test_another_file_of_the_name_has_none(tmp_path: Path) -> None:
    path = add_model(tmp_path, "chat")
    library = library_of(tmp_path)
    library.keep_calibration("chat", SURE)
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))
    assert library.calibration("chat") == ("chat", None)


@pytest.mark.parametrize("temperature", [b"0.0", b"-1.5"])
def test_an_impossible_temperature_is_none(tmp_path: Path, temperature: bytes) -> None:
    add_model(tmp_path, "chat")
    library = library_of(tmp_path)
    library.keep_calibration("chat", SURE)
    [record] = records(tmp_path)
    record.write_bytes(record.read_bytes().replace(b"1.5", temperature))
    assert library.calibration("chat") == ("chat", None)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    add_model(tmp_path, "chat")
    (tmp_path / STATE_FOLDER).write_text("not a folder")
    with pytest.raises(StoreError):
        library_of(tmp_path).keep_calibration("chat", SURE)


def test_without_descriptors_a_calibration_is_not_called_absent(tmp_path: Path) -> None:
    add_model(tmp_path, "chat")
    entry, index = ModelResolver(tmp_path).resolve("chat"), CalibrationIndex(tmp_path)
    index.put(entry, SURE)
    with no_descriptors(), pytest.raises(Unavailable):
        index.get(entry)
    assert index.get(entry) == SURE
