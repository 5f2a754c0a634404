"""What `jan-serve selfcheck` measured on this machine, one small file for each version of jan-serve.

A version writes its own file alone, so neither an upgrade nor a downgrade loses what another one recorded.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from jan_serve.core.self_check import SelfCheck
from jan_serve.store.files.atomic_file import private_folder, write_atomically
from jan_serve.store.versions import LaterVersion, Steps, latest, upgrade

_MAX_BYTES: Final = 1 << 16
SELF_CHECK_STEPS: Steps = {}
"""See `versions`."""

_log: Final = logging.getLogger(__name__)


class SelfChecks:
    """Of one data folder. Every method blocks briefly on the disk."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / "selfcheck"

    def all(self) -> tuple[SelfCheck, ...]:
        """The last one of each version, the newest last. Files that are damaged or of a later format are left out."""
        try:
            paths = sorted(path for path in self._folder.iterdir() if path.suffix == ".json")
        except OSError:
            return ()
        read = [check for path in paths if (check := _read(path)) is not None]
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
        content = msgspec.json.format(
            msgspec.json.encode(msgspec.structs.replace(check, format=latest(SELF_CHECK_STEPS))), indent=1
        )
        private_folder(self._folder)
        write_atomically(self._folder / f"{name}.json", content, mode=0o600)


def _read(path: Path) -> SelfCheck | None:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        values = msgspec.json.decode(content, type=dict[str, Any])
        upgrade(values, "format", SELF_CHECK_STEPS)
        return msgspec.convert(values, SelfCheck)
    except LaterVersion:
        return None
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        _log.warning("a self-check cannot be read", extra={"file": path.name, "reason": str(error)})
        return None
