"""Requests and tokens of each day, by key, model and program: a small file for each day."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Final

import filelock
import msgspec

from jan_serve.store.files import RecordFiles, private_folder

OTHERS: Final = "others"
"""Models and programs beyond _MAX_ROWS: a client chooses the name of its program."""
_MAX_ROWS: Final = 1000
_KEPT_DAYS: Final = 400
_LOCK_S: Final = 1.0


class TotalRow(msgspec.Struct, kw_only=True):
    """owner: stands for the key, see `core.caller`; program: how the User-Agent begins."""

    owner: str
    model: str
    program: str
    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class DayTotals(msgspec.Struct, kw_only=True):
    rows: list[TotalRow] = msgspec.field(default_factory=list[TotalRow])
    version: int = 1

    def add(self, other: TotalRow) -> None:
        row = self._row(other.owner, other.model, other.program)
        row.requests += other.requests
        row.prompt_tokens += other.prompt_tokens
        row.cached_tokens += other.cached_tokens
        row.completion_tokens += other.completion_tokens

    def _row(self, owner: str, model: str, program: str) -> TotalRow:
        for row in self.rows:
            if (row.owner, row.model, row.program) == (owner, model, program):
                return row
        if len(self.rows) >= _MAX_ROWS and (model, program) != (OTHERS, OTHERS):
            return self._row(owner, OTHERS, OTHERS)
        self.rows.append(TotalRow(owner=owner, model=model, program=program))
        return self.rows[-1]


class TotalFiles:
    """The totals in one data folder, which several servers may share. Every method blocks briefly on the disk."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / "totals"
        self._files = RecordFiles(
            DayTotals, "the totals of a day", self._folder, 1 << 22, mode=0o600, file_of="{}.json".format
        )

    def add(self, day: date, totals: DayTotals) -> None:
        """Add to what is there. Raises OSError; filelock.Timeout is one."""
        private_folder(self._folder)
        name = day.isoformat()
        with filelock.FileLock(self._folder / ".lock", timeout=_LOCK_S, mode=0o600):
            if self._files.is_later(name):
                return
            is_new, there = not self._files.path(name).exists(), self._files.get(name) or DayTotals()
            for row in totals.rows:
                there.add(row)
            self._files.put(name, there)
            if is_new:
                for old in sorted(self._folder.glob("????-??-??.json"))[:-_KEPT_DAYS]:
                    old.unlink(missing_ok=True)

    def read(self, owner: str, days: int) -> Iterable[tuple[str, TotalRow]]:
        """The rows of the last days that have any, the latest first, each with its day."""
        for path in sorted(self._folder.glob("????-??-??.json"), reverse=True)[:days]:
            found = self._files.read(path)
            for row in found.rows if found is not None else ():
                if row.owner == owner:
                    yield path.stem, row
