"""Records the permissions of files while they are written and renamed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest


def seen_modes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Records the permissions of each file that is written atomically: at creation and at the rename."""
    seen: list[int] = []
    opened, replaced = os.open, os.replace

    def open_file(path: str | Path, flags: int, mode: int = 0o777) -> int:
        descriptor = opened(path, flags, mode)
        if flags & os.O_CREAT:
            seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    def replace(source: Path, target: Path) -> None:
        seen.append(stat.S_IMODE(source.stat().st_mode))
        replaced(source, target)

    monkeypatch.setattr("jan_serve.store.files.os.open", open_file)
    monkeypatch.setattr("jan_serve.store.files.os.replace", replace)
    return seen
