"""Sizes, digests and times in rows."""

from __future__ import annotations

import pytest

from jan_serve.api.dialects.ollama.models.listing import (
    digest,
    listed_rows,
    modified_at,
    parameter_size,
)
from tests.unit.api.dialects.ollama.test_names import listed


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (8_190_000_000, "8.2B"), (8_000_000_000, "8B"), (70_553_706_496, "70.6B"), (494_032_768, "494.03M"),
        (12_345, "12.35K"), (64, "64"), (0, "0"),
    ],
)  # fmt: skip
def test_parameter_size(count: int, text: str) -> None:
    assert parameter_size(count) == text


def test_a_digest_is_the_files_or_changes_with_it() -> None:
    assert digest(listed("a", sha256="ab" * 32)) == "ab" * 32
    plain = digest(listed("a"))
    assert len(plain) == 64
    assert plain == digest(listed("a"))
    assert (
        len(
            {
                plain,
                digest(listed("b")),
                digest(listed("a", size_bytes=2)),
                digest(listed("a", modified_at=2)),
            }
        )
        == 4
    )


def test_times_are_utc() -> None:
    assert modified_at(listed("a", modified_at=86_400)) == "1970-01-02T00:00:00.000000Z"


def test_the_newest_model_is_first_and_broken_files_are_left_out() -> None:
    models = [listed("old", modified_at=1), listed("broken", problem="damaged"), listed("new", modified_at=2)]
    assert [row["name"] for row in listed_rows(models)] == ["new:latest", "old:latest"]


def test_rows_are_made_once_per_change_of_a_model() -> None:
    first, again = (
        listed_rows([listed("a"), listed("b")]),
        listed_rows([listed("a"), listed("b", size_bytes=9)]),
    )
    assert again[0] is first[0], "clients ask for the list of a thousand models again and again"
    assert again[1]["size"] == 9
