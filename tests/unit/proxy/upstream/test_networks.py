"""Networks where nodes may be."""

from __future__ import annotations

import ipaddress

import pytest

from jan_serve.proxy.upstream.networks import NodeNetworks


@pytest.mark.parametrize(("address", "allowed"), [
    ("127.0.0.1", True), ("10.1.2.3", True), ("172.31.0.1", True), ("192.168.1.1", True), ("100.64.0.1", True),
    ("::1", True), ("fd12::1", True), ("::ffff:10.0.0.1", True), ("172.32.0.1", False), ("169.254.169.254", False),
    ("::ffff:169.254.169.254", False), ("fe80::1", False), ("fd00:ec2::254", False), ("100.100.100.200", False),
    ("8.8.8.8", False), ("0.0.0.0", False), ("224.0.0.1", False), ("2001:db8::1", False),
])  # fmt: skip
def test_nodes_are_on_this_machine_or_in_private_networks(address: str, allowed: bool) -> None:
    assert NodeNetworks().allow(ipaddress.ip_address(address)) == allowed


def test_given_networks_replace_them() -> None:
    networks = NodeNetworks([ipaddress.ip_network("203.0.113.0/24")])
    assert networks.allow(ipaddress.ip_address("203.0.113.9"))
    assert networks.allow(ipaddress.ip_address("::ffff:203.0.113.9"))
    assert not networks.allow(ipaddress.ip_address("127.0.0.1"))
