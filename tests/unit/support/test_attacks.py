"""What the process that asks for /health saw is neither lost nor invented."""

from __future__ import annotations

import pytest

from tests.support.clients.attacks import Health, read_health


def test_a_line_that_is_cut_short_is_no_answer() -> None:
    line = "12.5 0.25 503\n"
    for end in range(len(line)):
        assert list(read_health([line, line[:end]])) == [Health(12.5, 0.25, 503)]


@pytest.mark.parametrize("line", ["\n", "12.5\n", "12.5 0.25\n", "12.5 0.25 ok\n", "1 2 3 4\n"])
def test_another_line_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"unpack|invalid literal"):
        list(read_health([line]))
