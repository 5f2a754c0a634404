"""A hostile connection without a key costs a megabyte and a deadline, whatever bytes it sends."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator

import pytest

from jan_serve.http import connection
from jan_serve.http.guards import body
from tests.support.clients.attacks import ATTACKS, Victim, asked_for_health
from tests.support.drawn_grid import some
from tests.support.processes import wait_until
from tests.support.servers.front_process import front_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process in /proc")

TIMEOUT_S = 0.5
BYTES = 1_000_000
NOISE = 2_000_000
SLOWEST_S = 60.0
"""For answers to thousands of requests, on a machine that is busy; the deadlines themselves are TIMEOUT_S."""


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Generator[Victim]:
    """Warm: what it loads at its first requests is there, and the allocator has its pools."""
    with front_process(
        tmp_path_factory.mktemp("front"), 0.0, api_keys=("secret",), timeout_s=TIMEOUT_S
    ) as front:
        warm = Victim(front)
        for name in ("many requests at once", "a refused body, trickled"):
            asyncio.run(warm.endure(ATTACKS[name], 60.0))
        yield warm


@pytest.mark.drawn
@pytest.mark.parametrize("name", some(ATTACKS, 24))
def test_a_hostile_connection_costs_little_and_ends(
    victim: Victim, name: str, record_property: Callable[[str, object], None]
) -> None:
    victim.forget_peak()
    before = victim.resident()
    with asked_for_health(victim.front.port) as asked:
        wait_until(lambda: bool(asked))
        ended_s = asyncio.run(victim.endure(ATTACKS[name], SLOWEST_S))
    slowest_s = max(answer.took_s for answer in asked)
    grown, n = victim.peak() - before, ATTACKS[name].connections
    for figure, value in (("seconds", ended_s), ("bytes", grown / n), ("slowest /health in s", slowest_s)):
        record_property(figure, value)
    assert {answer.status for answer in asked} == {200}
    assert grown <= n * BYTES + NOISE
    assert slowest_s < 20.0  # the promise is 100 ms; a test machine has other work


def test_the_deadlines_that_it_has_in_truth() -> None:
    assert (connection.HttpConnection.timeout_s, body.BODY_TIMEOUT_S) == (30.0, 30.0)
    assert connection.HttpConnection.max_head_bytes == 64 * 1024
