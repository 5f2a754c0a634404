"""Requests to a hostile, slow or missing hub: redirects, retries, sizes, and where the token goes."""

from __future__ import annotations

import logging
import time

import pytest

from jan_serve.errors import HubError, Offline
from jan_serve.store.hub.hub_http import HubAccess, HubHttp
from jan_serve.store.hub.pull import Puller
from jan_serve.store.hub.retries import RetryPolicy
from tests.integration.store.conftest import FILE, QUICK, REPO, Bench
from tests.support.servers.fake_hub import Fault, running_hub

pytestmark = pytest.mark.anyio

CANARY = "hf_canary-0123456789"


async def test_the_token_goes_to_the_hub_and_nowhere_else(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with running_hub() as other:
        other.repos[REPO] = bench.hub.repos[REPO]
        path = f"/{REPO}/resolve/{bench.hub.repos[REPO].commit}/{FILE}"
        bench.hub.file_faults.append(Fault(location=other.name_url + path))
        await bench.pull(puller=bench.puller(CANARY))
        assert bench.file().read_bytes() == bench.content()
        assert [asked.headers.get("authorization") for asked in bench.hub.requests] == [
            f"Bearer {CANARY}"
        ] * 2
        (elsewhere,) = other.requests
        assert "authorization" not in elsewhere.headers
        assert CANARY not in str(elsewhere.headers)
    assert CANARY not in caplog.text
    assert CANARY not in repr(HubAccess(bench.hub.url, CANARY))


async def test_a_redirect_to_this_machine_is_refused_for_a_hub_elsewhere(bench: Bench) -> None:
    """The connected peer decides, not the name: `localhost` here stands for any name that leads to a private place."""
    async with HubHttp(HubAccess("http://hub.example"), QUICK) as http:
        with pytest.raises(HubError, match=r"redirects to (127\.0\.0\.1|::1), a private address"):
            async with http.stream(bench.hub.name_url + "/x"):
                pass
    assert bench.hub.requests == []


@pytest.mark.parametrize(
    ("endpoint", "url", "sent"),
    [
        ("https://hub.example", "https://hub.example/x", True),
        ("https://hub.example", "https://hub.example:443/x", True),
        ("https://hub.example", "http://hub.example/x", False),
        ("https://hub.example", "https://hub.example:8443/x", False),
        ("https://hub.example", "https://cdn.hub.example/x", False),
        ("http://hub.example", "http://hub.example/x", False),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/x", True),
        ("http://127.0.0.1:8080", "http://localhost:8080/x", False),
    ],
)
async def test_where_the_token_may_go(endpoint: str, url: str, sent: bool) -> None:
    import httpx2

    async with HubHttp(HubAccess(endpoint, CANARY)) as http:
        assert bool(http._authorization(httpx2.URL(url))) is sent  # pyright: ignore[reportPrivateUsage]
        assert http.token_withheld is (endpoint == "http://hub.example")


async def test_a_list_that_is_a_bomb_is_refused(bench: Bench) -> None:
    from tests.support.servers.fake_hub import gzip_bomb

    fault = Fault(body=gzip_bomb(200 << 20), headers={"Content-Encoding": "gzip"})
    bench.hub.listing_faults.append(fault)
    with pytest.raises(HubError, match="more than"):
        await bench.pull()
    bench.hub.listing_faults.append(Fault(body=b"x" * 100, headers={"Content-Encoding": "br"}))
    with pytest.raises(HubError, match="encoding"):
        await bench.pull()


async def test_nobody_listening_is_offline_at_once(bench: Bench) -> None:
    bench.hub.stop()
    began = time.monotonic()
    with pytest.raises(Offline, match="cannot be reached"):
        await bench.puller(retry_policy=RetryPolicy()).plan(REPO)
    assert time.monotonic() - began < 20
    with pytest.raises(Offline):
        await Puller(bench.models, HubAccess("http://no-such-host.invalid"), retry_policy=QUICK).plan(REPO)
