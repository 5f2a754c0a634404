from __future__ import annotations

import pytest

from jan_serve.core.latest_tag import with_latest_tag


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a", "a:latest"), ("a:b", "a:b"), ("org/repo/file", "org/repo/file:latest"),
        ("host:5000/a", "host:5000/a:latest"), ("host:5000/a:b", "host:5000/a:b"),
    ],
)  # fmt: skip
def test_a_name_has_a_tag(name: str, expected: str) -> None:
    assert with_latest_tag(name) == expected
