"""What the process that asks for /health saw is neither lost nor invented."""

from __future__ import annotations

import pytest

from tests.support.clients.attacks import asked_for_health
from tests.support.processes import wait_until, zombies


def test_an_asking_process_that_ends_by_itself_is_noticed() -> None:
    no_port = 1 << 64
    with pytest.raises(AssertionError, match="by itself"), asked_for_health(no_port):
        wait_until(lambda: bool(zombies()))
