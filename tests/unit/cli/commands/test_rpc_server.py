"""rpc-server: what it refuses before it listens, and whom it admits."""

from __future__ import annotations

import ipaddress

import pytest

from jan_serve.cli.server.rpc_relay import is_admitted
from tests.unit.cli.conftest import Run


def test_other_machines_are_refused_without_a_network(run: Run) -> None:
    answer = run("rpc-server", "--host", "0.0.0.0")
    assert answer.status == 2
    assert "neither authentication nor encryption" in answer.err
    assert "--allow" in answer.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--host", "0.0.0.0", "--allow", "somewhere"), "'somewhere' is not a network"),
        (("--host", "0.0.0.0", "--allow", "0.0.0.0/0"), "is every address"),
        (("--memory", "much"), "'much' is not a size such as 24GB"),
    ],
)
def test_wrong_options(run: Run, words: tuple[str, ...], expected: str) -> None:
    answer = run("rpc-server", *words)
    assert answer.status == 2
    assert expected in " ".join(answer.err.split())


@pytest.mark.parametrize(
    ("host", "admitted"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("192.168.1.7", True),
        ("::ffff:192.168.1.7", True),
        ("192.168.2.7", False),
        ("fd00::7", False),
    ],
)
def test_clients_of_the_networks_and_of_this_machine_are_admitted(host: str, admitted: bool) -> None:
    assert is_admitted(host, [ipaddress.ip_network("192.168.1.0/24")]) is admitted
