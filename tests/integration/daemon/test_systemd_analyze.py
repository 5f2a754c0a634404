"""systemd-analyze: the units are valid, and the exposure of a system service is low."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

from jan_serve.daemon.plan import Scope, ServiceSpec, Start
from tests.unit.daemon.specs import ODD_FOLDER, linux, unit_files

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian's package systemd)"
)

_MAX_EXPOSURE = 2.5
"""Most points of exposure, of 10: accelerators need most of them (devices, a clock, memory that is writable and
executable)."""


def real(scope: Scope, start: Start) -> ServiceSpec:
    """A service whose program exists, in folders with odd names."""
    return linux(
        scope,
        start,
        command=(sys.executable, "-P", "-m", "jan_serve"),
        models_dir=ODD_FOLDER,
        config_file=PurePosixPath("/etc/jan serve/100%.toml"),
    )


def written(folder: Path, spec: ServiceSpec) -> list[str]:
    """The unit files in a folder."""
    paths: list[str] = []
    for name, text in unit_files(spec).items():
        (folder / name.name).write_text(text, encoding="utf-8")
        paths.append(str(folder / name.name))
    return paths


def analyze(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """systemd-analyze, with a runtime folder of its own: it wants one for units of users."""
    environment = os.environ | {"XDG_RUNTIME_DIR": str(folder)}
    return subprocess.run(
        ["systemd-analyze", *words], capture_output=True, text=True, timeout=60, check=False, env=environment
    )


@pytest.mark.parametrize("start", ["at-login", "on-demand"])
@pytest.mark.parametrize("scope", ["user", "system"])
def test_the_units_are_valid(tmp_path: Path, scope: Scope, start: Start) -> None:
    paths = written(tmp_path, real(scope, start))
    done = analyze(tmp_path, "verify", "--man=no", f"--{scope}", *paths)
    messages = [line for line in done.stderr.splitlines() if "jan-serve" in line or str(tmp_path) in line]
    assert (done.returncode, messages) == (0, [])


def test_a_wrong_unit_is_noticed(tmp_path: Path) -> None:
    (path, *_) = written(tmp_path, real("system", "at-login"))
    text = Path(path).read_text(encoding="utf-8")
    Path(path).write_text(text.replace("ProtectSystem=strict", "ProtectSystem=nonsense"), encoding="utf-8")
    done = analyze(tmp_path, "verify", "--man=no", path)
    assert f"{path}:" in done.stderr
    assert "nonsense" in done.stderr


def test_the_exposure_of_a_system_service_is_bounded(tmp_path: Path) -> None:
    (path, *_) = written(tmp_path, real("system", "at-login"))
    done = analyze(tmp_path, "security", "--no-pager", "--offline=true", path)
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd cannot judge units that are not loaded")
    found = re.search(r"Overall exposure level for jan-serve.service: (\d+\.\d)", done.stdout)
    assert found is not None
    assert float(found[1]) <= _MAX_EXPOSURE
