"""Names and addresses of this machine."""

from __future__ import annotations

import pytest

from jan_serve.core.hosts import is_loopback


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1", "::1%lo"]
)
def test_hosts_of_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example", "::ffff:10.0.0.1"]
)
def test_hosts_of_others(host: str) -> None:
    assert not is_loopback(host)
