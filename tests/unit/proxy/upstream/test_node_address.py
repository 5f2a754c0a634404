"""URLs of nodes."""

from __future__ import annotations

import ipaddress

import pytest

from jan_serve.proxy.upstream.node_address import BadUrl, NodeNetworks, parse_node_url


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("http://A.Example:80/", "http://a.example"),
        ("https://a.example:443", "https://a.example"),
        ("http://a.example:443", "http://a.example:443"),
        ("http://10.0.0.1:8000/lmdeploy/", "http://10.0.0.1:8000/lmdeploy"),
        ("http://[::1]:80", "http://[::1]"),
        ("http://[0:0:0:0:0:0:0:1]:8000", "http://[::1]:8000"),
        ("http://a.example.", "http://a.example"),
        ("HTTP://a_b", "http://a_b"),
    ],
)
def test_one_node_has_one_spelling(text: str, canonical: str) -> None:
    assert str(parse_node_url(text)) == canonical
    assert str(parse_node_url(canonical)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "", "http://", "http:///x", "a.example", "//a.example", "file:///x", "gopher://a", "http://a:b@c", "http://@c",
        "http://a?", "http://a#", "http://a/?x", "http://a:0", "http://a:65536", "http://a:x", "http://a:",
        "http://a b", "http://a\r\nx", "http://a\\@b", "http://::1", "http://[::1", "http://[a]", "http://[fe80::1%eth0]",
        "http://1.2.3", "http://256.1.1.1", "http://0x7f.1", "http://2130706433", "http://-a", "http://a..b", "http://ä",
        "http://a/../b", "http://a/%2e%2e", "http://a//b", "http://" + "a" * 2048,
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_a_reason(text: str) -> None:
    if text == "http://0x7f.1":
        assert (
            parse_node_url(text).host == "0x7f.1"
        )  # a name, which the resolver knows or not; its address is checked
        return
    with pytest.raises(BadUrl, match=r"\w{3}"):
        parse_node_url(text)


@pytest.mark.parametrize(("text", "caller", "host"), [
    ("http://0.0.0.0:8000", "10.0.0.7", "10.0.0.7"),
    ("http://[::]:8000", "fd00::7", "fd00::7"),
    ("http://127.0.0.1:8000", "127.0.0.1", "127.0.0.1"),
    ("http://10.0.0.9:8000", "10.0.0.7", "10.0.0.9"),
])  # fmt: skip
def test_a_server_on_every_address_is_where_its_call_came_from(text: str, caller: str, host: str) -> None:
    assert parse_node_url(text, caller).host == host


@pytest.mark.parametrize(("text", "caller"), [
    ("http://127.0.0.1:8000", "10.0.0.7"), ("http://localhost:8000", "10.0.0.7"), ("http://[::1]:8000", "fd00::7"),
    ("http://0.0.0.0:8000", None),
])  # fmt: skip
def test_loopback_of_another_machine_is_not_the_proxys(text: str, caller: str | None) -> None:
    with pytest.raises(BadUrl):
        parse_node_url(text, caller)


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
