"""What versions recorded of a machine: compared, kept apart, and never lost to another version."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jan_serve.store.self_checks import SelfChecks
from tests.unit.core.test_measurements import OLD, changed


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
