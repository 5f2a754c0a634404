"""Headers that go on to a node, and those that come back."""

from __future__ import annotations

import pytest

from jan_serve.proxy.relay_headers import HOPS, NODE, Headers, hops_of, to_client, to_node


def test_a_node_gets_neither_keys_nor_cookies_nor_the_headers_of_one_connection() -> None:
    headers: Headers = [
        (b"host", b"proxy"),
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer clients"),
        (b"x-api-key", b"clients"),
        (b"cookie", b"a=b"),
        (b"sec-fetch-site", b"none"),
        (b"x-forwarded-for", b"1.2.3.4"),
        (b"x-jan-serve-hops", b"0"),
        (b"x-jan-serve-caller", b"another client"),
        (b"x-trace", b"1"),
        (b"x-private", b"2"),
        (b"connection", b"keep-alive, X-Private"),
    ]
    assert to_node(headers, "10.0.0.7", 1, "nodes") == [
        (b"content-type", b"application/json"),
        (b"x-trace", b"1"),
        (HOPS, b"1"),
        (b"x-forwarded-for", b"10.0.0.7"),
        (b"authorization", b"Bearer nodes"),
    ]


def test_a_node_learns_whom_a_request_is_for_where_there_are_several_keys() -> None:
    claimed: Headers = [(b"x-jan-serve-caller", b"another client")]
    assert to_node(claimed, None, 1, None, "c4") == [(HOPS, b"1"), (b"x-jan-serve-caller", b"c4")]


def test_a_node_without_a_key_and_a_client_without_an_address() -> None:
    assert to_node([], None, 3, None) == [(HOPS, b"3")]


def test_a_client_gets_neither_cookies_nor_permissions_of_a_node() -> None:
    headers: Headers = [
        (b"content-type", b"text/event-stream"),
        (b"content-length", b"3"),
        (b"set-cookie", b"a=b"),
        (b"server", b"x"),
        (b"access-control-allow-origin", b"*"),
        (b"x-jan-serve-node", b"another"),
        (b"x-once", b"1"),
        (b"connection", b"x-once"),
    ]
    assert to_client(headers, "10.0.0.9:8000") == [
        (b"content-type", b"text/event-stream"),
        (b"content-length", b"3"),
        (NODE, b"10.0.0.9:8000"),
    ]


@pytest.mark.parametrize(
    ("value", "passed"),
    [
        (b"5", b"5"),
        (b"3600", b"3600"),
        (b"3601", b"3600"),
        (b"9" * 5000, b"3600"),
        (b"Wed, 21 Oct 2026 07:28:00 GMT", b"Wed, 21 Oct 2026 07:28:00 GMT"),
    ],
)
def test_a_node_cannot_make_clients_wait_for_days(value: bytes, passed: bytes) -> None:
    assert to_client([(b"retry-after", value)], "n")[0] == (b"retry-after", passed)


@pytest.mark.parametrize(
    ("values", "hops"),
    [
        ([], 0),
        ([b"0"], 0),
        ([b"7"], 7),
        ([b"-1"], 1000),
        ([b""], 1000),
        ([b"1", b"1"], 1000),
        ([b"1" * 4], 1000),
        ([b"\xb2"], 1000),
    ],
)
def test_hops_that_no_proxy_writes_count_as_many(values: list[bytes], hops: int) -> None:
    assert hops_of([(HOPS, value) for value in values]) == hops
