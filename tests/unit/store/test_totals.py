"""Totals of days in files: sums, servers that share a folder, bounds, damage, privacy."""

from __future__ import annotations

import os
import threading
from datetime import date, timedelta
from pathlib import Path

import pytest

from jan_serve.store import totals
from jan_serve.store.totals import OTHERS, DayTotals, TotalFiles, TotalRow

DAY = date(2026, 11, 28)


def row(owner: str = "", model: str = "m", program: str = "p", tokens: int = 1) -> TotalRow:
    return TotalRow(
        owner=owner,
        model=model,
        program=program,
        requests=1,
        prompt_tokens=tokens,
        cached_tokens=tokens // 2,
        completion_tokens=2 * tokens,
    )


def read(files: TotalFiles, owner: str = "", days: int = 30) -> list[tuple[str, str, str, int, int]]:
    found = files.read(owner, days)
    return [(day, each.model, each.program, each.requests, each.prompt_tokens) for day, each in found]


def test_rows_add_up_by_day_model_and_program_and_for_each_key(tmp_path: Path) -> None:
    files, later = TotalFiles(tmp_path), TotalFiles(tmp_path)
    files.add(DAY, DayTotals(rows=[row(), row(program="q"), row(owner="key", tokens=100)]))
    later.add(DAY, DayTotals(rows=[row(tokens=10), row(model="n")]))
    later.add(DAY + timedelta(days=1), DayTotals(rows=[row()]))
    assert read(later) == [
        ("2026-11-29", "m", "p", 1, 1),
        ("2026-11-28", "m", "p", 2, 11),
        ("2026-11-28", "m", "q", 1, 1),
        ("2026-11-28", "n", "p", 1, 1),
    ]
    assert read(later, days=1) == [("2026-11-29", "m", "p", 1, 1)]
    assert read(later, owner="key") == [("2026-11-28", "m", "p", 1, 100)]


def test_servers_that_add_at_once_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "_LOCK_S", 120.0)

    def add() -> None:
        for _ in range(5):
            TotalFiles(tmp_path).add(DAY, DayTotals(rows=[row()]))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(TotalFiles(tmp_path)) == [("2026-11-28", "m", "p", 20, 20)]


def test_programs_that_a_client_invents_share_one_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "_MAX_ROWS", 5)
    files = TotalFiles(tmp_path)
    for number in range(10):
        files.add(DAY, DayTotals(rows=[row(program=str(number)), row(owner="key", program=str(number))]))
    mine, theirs = read(files), read(files, owner="key")
    assert len(mine) + len(theirs) == 5 + 2
    for rows in (mine, theirs):
        assert sum(each[3] for each in rows) == 10
        assert rows[-1][1:3] == (OTHERS, OTHERS)


def test_old_days_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "_KEPT_DAYS", 3)
    files = TotalFiles(tmp_path)
    for number in range(6):
        files.add(DAY + timedelta(days=number), DayTotals(rows=[row()]))
    assert [each[0] for each in read(files)] == ["2026-12-03", "2026-12-02", "2026-12-01"]


@pytest.mark.parametrize(("content", "after"), [("{", 1), ("[]", 1), ('{"rows": [], "version": 2}', 0)])
def test_a_damaged_day_begins_anew_and_one_of_a_later_version_stays(
    tmp_path: Path, content: str, after: int
) -> None:
    files = TotalFiles(tmp_path)
    path = tmp_path / "totals" / "2026-11-28.json"
    path.parent.mkdir()
    path.write_text(content)
    assert read(files) == []
    files.add(DAY, DayTotals(rows=[row()]))
    assert len(read(files)) == after
    assert after or path.read_text() == content


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_they_are_private(tmp_path: Path) -> None:
    TotalFiles(tmp_path).add(DAY, DayTotals(rows=[row()]))
    folder = tmp_path / "totals"
    assert folder.stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o077 == 0 for file in folder.iterdir())
