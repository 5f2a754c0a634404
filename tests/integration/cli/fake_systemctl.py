"""A fake systemctl in a folder: it stores the state of units in files, and starts nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

_SCRIPT = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
words = sys.argv[1:]
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps(words) + "\\n")
state = json.loads((folder / "state").read_text())
refused = (folder / "refuses").read_text().split()
words = [word for word in words if word not in ("--user", "--now")]
action, units = words[0], [word for word in words[1:] if not word.startswith("--")]
units_folder = pathlib.Path({units!r})
for unit in units:
    there = (units_folder / unit).exists()
    if action in refused or (action in ("enable", "start", "restart") and not there):
        print(f"Job for {{unit}} failed.", file=sys.stderr)
        sys.exit(1)
    if action in ("enable", "start", "restart"):
        state[unit] = "running"
    if action in ("disable", "stop"):
        state.pop(unit, None)
if action == "show":
    for number, unit in enumerate(units):
        loaded = "loaded" if (units_folder / unit).exists() else "not-found"
        active = "active" if unit in state else "inactive"
        if number:
            print()
        print(f"LoadState={{loaded}}\\nActiveState={{active}}\\nSubState=\\nUnitFileState=enabled\\nMainPID=0")
(folder / "state").write_text(json.dumps(state))
"""


class FakeSystemctl:
    """Put `folder` in front of PATH. units: the folder with the units."""

    def __init__(self, folder: Path, units: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "state").write_text("{}")
        (folder / "refuses").write_text("")
        (folder / "calls").write_text("")
        script = folder / "systemctl"
        script.write_text(_SCRIPT.format(python=sys.executable, folder=str(folder), units=str(units)))
        script.chmod(0o755)

    def refuse(self, *actions: str) -> None:
        """Make these commands fail."""
        (self.folder / "refuses").write_text(" ".join(actions))

    def calls(self) -> list[str]:
        """The calls since the last time, without queries."""
        path = self.folder / "calls"
        lines = [" ".join(json.loads(line)) for line in path.read_text().splitlines()]
        path.write_text("")
        return [line for line in lines if " show " not in f" {line} "]
