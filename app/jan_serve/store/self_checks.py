"""What `jan-serve selfcheck` measured on this machine, one small file for each version of jan-serve.

A version writes its own file alone, so neither an upgrade nor a downgrade loses what another one recorded.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from jan_serve.core.measurements import SelfCheck
from jan_serve.store.files.record_files import RecordFiles
from jan_serve.store.files.small_files import private_folder

SELF_CHECKS: Final = RecordFiles(SelfCheck, "a self-check", max_bytes=1 << 16, key="format", mode=0o600)


class SelfChecks:
    """The measurements in one data folder. Every method blocks briefly on the disk."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / "selfcheck"

    def all(self) -> tuple[SelfCheck, ...]:
        """The last one of each version, the newest last. Files that are damaged or of a later format are left out."""
        try:
            paths = sorted(path for path in self._folder.iterdir() if path.suffix == ".json")
        except OSError:
            return ()
        read = [check for path in paths if (check := SELF_CHECKS.read(path)) is not None]
        return tuple(sorted(read, key=lambda check: check.at))

    def before(self, version: str) -> SelfCheck | None:
        """What a run of this version is compared with: the newest of another version, else its own last one."""
        known = self.all()
        return next(
            (check for check in reversed(known) if check.version != version), known[-1] if known else None
        )

    def put(self, check: SelfCheck) -> None:
        """Write it in place of its version's last one. Raises OSError."""
        name = re.sub(r"[^0-9A-Za-z.+-]", "_", check.version)
        private_folder(self._folder)
        SELF_CHECKS.write(self._folder / f"{name}.json", check)
