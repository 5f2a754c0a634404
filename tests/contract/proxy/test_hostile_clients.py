"""The proxy has the server's connections and guards: what a client without a key sends costs it as little."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator

import pytest

from tests.contract.test_attacks import BYTES, NOISE, SLOWEST_S, TIMEOUT_S
from tests.support.clients.attacks import ATTACKS, Victim
from tests.support.servers.front_process import front_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process in /proc")

NAMES = [
    "fields, trickled",
    "trailers without end",
    "a chunk size without end",
    "chunks, trickled",
    "a refused body, trickled",
    "a refused body without end",
    "a refused body that waits for leave",
    "a body for a preflight",
    "a body for HEAD /health",
    "a body behind an upgrade",
    "many requests at once",
    "many requests at once, unread",
    "many bodies at once, unread",
    "half of a body, half-closed",
]


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Generator[Victim]:
    """Warm, so that its pools of memory are filled."""
    folder = tmp_path_factory.mktemp("proxy")
    with front_process(folder, 0.0, api_keys=("secret",), timeout_s=TIMEOUT_S, is_proxy=True) as front:
        warm = Victim(front)
        for name in ("many requests at once", "a refused body, trickled"):
            asyncio.run(warm.endure(ATTACKS[name], 60.0))
        yield warm


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_connection_costs_little_and_ends(victim: Victim, name: str) -> None:
    victim.forget_peak()
    before = victim.resident()
    asyncio.run(victim.endure(ATTACKS[name], SLOWEST_S))
    assert victim.peak() - before <= ATTACKS[name].connections * BYTES + NOISE
