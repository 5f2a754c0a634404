"""Sizes, digests and times in rows."""

from __future__ import annotations

import pytest

from jan_serve.api.dialects.ollama.models.listing import digest, modified_at, parameter_size
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
