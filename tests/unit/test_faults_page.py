"""Pages that name tests: each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("page", "at_least"),
    [
        ("docs/faults.md", 40),
        ("docs/threat-model.md", 40),
        ("docs/reliability.md", 1),
        ("benchmarks/results/reliability.md", 8),
    ],
)
def test_every_test_that_the_page_names_is_there(page: str, at_least: int) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    there: set[str] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        there.update(
            re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        )
    assert len(named) >= at_least
    assert named - there == set()


def test_every_threat_has_a_test() -> None:
    """A row of the page without one is a wish."""
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| threat")]
    assert len(rows) > 25
    assert [row for row in rows if "`test_" not in row] == []
