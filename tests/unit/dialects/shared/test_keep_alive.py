from __future__ import annotations

import pytest

from jan_serve.dialects.shared.keep_alive import ttl_s
from jan_serve.errors import InvalidRequest


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None), (0, 0.0), (300, 300.0), (1.5, 1.5), (-1, -1.0), (-0.5, -1.0),
        ("5m", 300.0), ("1h30m", 5400.0), ("90s", 90.0), ("500ms", 0.5), ("1.5h", 5400.0), (".5s", 0.5),
        ("0", 0.0), ("0s", 0.0), ("-1", -1.0), ("-1m", -1.0), ("300", 300.0), ("+5m", 300.0), (" 5m ", 300.0),
    ],
)  # fmt: skip
def test_durations(value: float | str | None, expected: float | None) -> None:
    assert ttl_s(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "", "m", "5 m", "5d", "five", "1h-30m", "5mm", "nan", "9" * 65, float("nan"), float("inf"),
        pytest.param(10**309, id="no float is that large"), pytest.param(-(10**309), id="nor that small"),
    ],
)  # fmt: skip
def test_what_is_no_duration(value: int | float | str) -> None:
    with pytest.raises(InvalidRequest, match="keep_alive: must be a number of seconds"):
        ttl_s(value)
