"""Writes the generated files of the package: its unit and its initial settings.

.venv/bin/python packaging/deb/render.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath

from jan_serve.daemon.plan import ServiceSpec
from jan_serve.daemon.systemd import INITIAL_CONFIG, SERVICE, SYSTEM_CONFIG, SYSTEM_DATA, service_unit


def main() -> None:
    root = Path(sys.argv[1])
    spec = ServiceSpec(
        command=("/usr/bin/jan-serve",),
        scope="system",
        start="at-login",
        config_file=SYSTEM_CONFIG,
        address=("127.0.0.1", 1337),
        data_dir=SYSTEM_DATA,
        models_dir=SYSTEM_DATA / "models",
        # With systemd, its sysusers created both groups; it does not start a unit that names a missing group.
        device_groups=("render", "video"),
        home=PurePosixPath("/"),
        config_home=SYSTEM_CONFIG.parent,
    )
    write(root / "usr/lib/systemd/system" / SERVICE, service_unit(spec))
    write(root / str(SYSTEM_CONFIG).lstrip("/"), INITIAL_CONFIG.content)


def write(path: Path, text: str) -> None:
    """A file and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
