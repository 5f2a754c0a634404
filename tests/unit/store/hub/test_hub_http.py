"""How long the hub is waited for, and how often."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import httpx2
import pytest

from jan_serve.errors import HubError, HubUnavailable
from jan_serve.store.hub import retries
from jan_serve.store.hub.hub_http import HubAccess, HubHttp
from jan_serve.store.hub.retries import RetryPolicy, TransientFailure

pytestmark = pytest.mark.anyio

POLICY = RetryPolicy(tries=3, backoff_s=2.0, max_wait_s=10.0)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds of each wait; nobody waits, and chance is always in the middle."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(retries.asyncio, "sleep", sleep)

    def middle(low: float, high: float) -> float:
        return (low + high) / 2

    monkeypatch.setattr(retries.random, "uniform", middle)
    return waited


def failing(*failures: TransientFailure | None) -> Callable[[], Awaitable[str]]:
    """An attempt with these results, in turn."""
    left = list(failures)

    async def attempt() -> str:
        failure = left.pop(0)
        if failure is not None:
            raise failure
        return "done"

    return attempt


def down(wait_s: float | None = None) -> TransientFailure:
    return TransientFailure("down", wait_s)


async def test_each_wait_is_twice_the_last(waits: list[float]) -> None:
    async with HubHttp(HubAccess(), RetryPolicy(tries=6, backoff_s=2.0, max_wait_s=10.0)) as http:
        assert await http.retrying(failing(*[down()] * 5, None)) == "done"
    assert waits == [2.0, 4.0, 8.0, 10.0, 10.0]


async def test_the_last_reason_is_given(waits: list[float]) -> None:
    async with HubHttp(HubAccess("https://hub.example:99"), POLICY) as http:
        with pytest.raises(
            HubUnavailable, match=r"hub\.example:99 failed 3 times in a row; .*: the end\."
        ) as raised:
            await http.retrying(failing(down(), down(), TransientFailure("the end", 7.0)))
    assert raised.value.retry_after == 7.0
    assert len(waits) == 2


async def test_progress_starts_the_count_again(waits: list[float]) -> None:
    received = iter((0, 5, 5, 9, 9, 9))
    async with HubHttp(HubAccess(), POLICY) as http:
        with pytest.raises(HubUnavailable, match="failed 3 times"):
            await http.retrying(failing(*[down()] * 5), lambda: next(received))
    assert waits == [2.0, 4.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("7", 7.0),
        ("7.5", None),
        ("-1", None),
        ("", None),
        ("soon", None),
        ("²", None),
        ("9" * 10, None),
        ("Fri, 31 Dec 9999 23:59:59 GMT", None),
    ],
)
async def test_retry_after(waits: list[float], value: str, seconds: float | None) -> None:
    headers = [(b"Retry-After", value.encode())]
    transport = httpx2.MockTransport(lambda _: httpx2.Response(503, headers=headers))
    async with HubHttp(HubAccess("https://hub.example"), POLICY) as http:
        http._client = httpx2.AsyncClient(transport=transport)  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(TransientFailure) as raised:
            async with http.stream("https://hub.example/x"):
                pass
    assert raised.value.wait_s == seconds
    assert raised.value.reason == "status 503 Service Unavailable"


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://hub.example/x", "from https to http"),
        ("http://cdn.example/x", "from https to http"),
        ("https://10.0.0.1/x", "private address"),
        ("https://[::ffff:10.0.0.1]/x", "private address"),
        ("https://user@cdn.example/x", "plain http"),
        ("ftp://cdn.example/x", "plain http"),
        ("mailto:a@b", "no address"),
        ("/again", "more than 5 times"),
    ],
)
async def test_redirects_out_of_bounds(location: str, reason: str) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(302, headers={"Location": location})

    async with HubHttp(HubAccess("https://hub.example", "token"), POLICY) as http:
        http._client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(HubError, match=reason):
            async with http.stream("https://hub.example/x", headers={"Range": "bytes=5-"}):
                pass
    assert {request.url.host for request in asked} == {"hub.example"}
    assert all(request.headers["range"] == "bytes=5-" for request in asked)


async def test_the_token_comes_back_with_a_redirect_to_the_hub() -> None:
    places = iter(("https://cdn.example/x", "https://hub.example/y"))
    sent: list[tuple[str, str | None]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append((request.url.host, request.headers.get("authorization")))
        place = next(places, None)
        return httpx2.Response(200) if place is None else httpx2.Response(302, headers={"Location": place})

    async with HubHttp(HubAccess("https://hub.example", "token"), POLICY) as http:
        http._client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))  # pyright: ignore[reportPrivateUsage]
        async with http.stream("https://hub.example/x") as response:
            assert response.status_code == 200
    own = ("hub.example", "Bearer token")
    assert sent == [own, ("cdn.example", None), own]


@pytest.mark.parametrize(("asked_s", "waited"), [(10.0, [10.0]), (10.1, [])])
async def test_a_wait_that_the_hub_asks_for_has_a_limit(
    waits: list[float], asked_s: float, waited: list[float]
) -> None:
    async with HubHttp(HubAccess(), POLICY) as http:
        attempt = failing(down(asked_s), None)
        if waited:
            assert await http.retrying(attempt) == "done"
        else:
            with pytest.raises(HubUnavailable, match="asks to wait for 10 s"):
                await http.retrying(attempt)
    assert waits == waited
