"""HTTP client for the model hub, hardened against an untrusted network.

The token is sent only to the configured endpoint, over https or loopback. Redirects never lead from https to http, or
to a private address other than the hub's (checked on the connected peer, so that DNS cannot bypass it). Responses are
limited in size after decompression. Transient failures are retried with back-off and the hub's Retry-After. httpx takes
proxies and certificates from the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Self, TypeVar

import httpx2
import msgspec

from jan_serve import __version__
from jan_serve.core.hosts import address_of, is_loopback
from jan_serve.errors import HubError, Offline
from jan_serve.store.hub.retries import RetryPolicy, TransientFailure, retrying

MAX_REDIRECTS: Final = 5
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_ENCODINGS: Final = ("identity", "gzip")
"""Encodings of bounded size: a 64 KiB piece of gzip decompresses to at most 64 MiB. Others have no such bound."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HubAccess:
    """endpoint: scheme, host, port and an optional path, without a trailing slash."""

    endpoint: str = "https://huggingface.co"
    token: str | None = field(default=None, repr=False)


@cache
def _tls() -> ssl.SSLContext:
    """httpx2's own, made once: to read the authorities of this machine takes 30 ms."""
    return httpx2.create_ssl_context()


class HubHttp:
    """A connection pool for one hub and one event loop. Closing it aborts running transfers."""

    def __init__(self, access: HubAccess, retry_policy: RetryPolicy | None = None) -> None:
        self.access = access
        self.retry_policy = retry_policy or RetryPolicy()
        self._endpoint = httpx2.URL(access.endpoint)
        self._reached = False
        self._hub_addresses: set[str] = set()
        self._client = httpx2.AsyncClient(
            verify=_tls(),
            follow_redirects=False,
            timeout=httpx2.Timeout(self.retry_policy.read_s, connect=self.retry_policy.connect_s),
            headers={"User-Agent": f"jan-serve/{__version__}", "Accept-Encoding": "identity"},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    @property
    def host(self) -> str:
        """The endpoint's host and port, for messages."""
        return self._endpoint.netloc.decode("ascii")

    @property
    def token_withheld(self) -> bool:
        """Whether the token is not sent because the connection is not encrypted."""
        return self.access.token is not None and not self._authorization(self._endpoint)

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], progress: Callable[[], int] | None = None
    ) -> T:
        """As `retries.retrying`. Raises Offline at once if no connection to the hub was ever made."""
        return await retrying(attempt, self.retry_policy, self.host, progress)

    async def answer(self, url: str, max_bytes: int, params: Mapping[str, str] | None = None) -> HubResponse:
        """A small document, with retries; no body from status 400 on. Raises HubError, HubUnavailable, Offline."""

        async def attempt() -> HubResponse:
            async with self.stream(url, params=params) as response:
                if response.status_code >= 400:
                    return HubResponse(response.status_code, response.headers, b"")
                encoding = response.headers.get("content-encoding", "identity").lower()
                if encoding not in _ENCODINGS:
                    answer = f"answers in the encoding {encoding!a}, which was not requested"
                    raise HubError(f"{self.host} {answer}.")
                content = bytearray()
                # Pieces are decoded one at a time: a decompression bomb costs only one piece.
                async for piece in response.aiter_bytes():
                    content += piece
                    if len(content) > max_bytes:
                        raise HubError(f"{self.host} answers with more than {max_bytes} bytes.")
                return HubResponse(response.status_code, response.headers, bytes(content))

        async def in_time() -> HubResponse:
            limit_s = self.retry_policy.answer_s
            try:
                async with asyncio.timeout(limit_s):
                    return await attempt()
            except TimeoutError:
                raise TransientFailure(f"no whole answer within {limit_s:g} s") from None

        return await self.retrying(in_time)

    @contextlib.asynccontextmanager
    async def stream(
        self, url: str, *, headers: Mapping[str, str] | None = None, params: Mapping[str, str] | None = None
    ) -> AsyncGenerator[httpx2.Response]:
        """Send one request and follow redirects; the response's body is unread. Raises TransientFailure (also for
        temporary statuses), Offline, HubError for a rejected redirect."""
        request = self._client.build_request("GET", url, params=params, headers=headers)
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send(request)
            try:
                if response.has_redirect_location:
                    if response.next_request is None:
                        raise HubError(f"{self.host} redirects to something that is no address.")
                    request = response.next_request
                    continue
                if response.status_code in _TRANSIENT_STATUS:
                    reason = f"status {response.status_code} {response.reason_phrase}".rstrip()
                    raise TransientFailure(reason, _retry_after(response.headers))
                with _network_failures():
                    yield response
                return
            finally:
                await response.aclose()
        raise HubError(f"{self.host} redirects more than {MAX_REDIRECTS} times.")

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        self._check_url(request.url)
        request.headers.pop("Authorization", None)
        request.headers.update(self._authorization(request.url))
        request.extensions["trace"] = self._peer_check(request.url)
        try:
            with _network_failures():
                response = await self._client.send(request, stream=True)
        except TransientFailure as failure:
            cause = failure.__cause__
            is_tls = any(isinstance(each, ssl.SSLError) for each in _causes(cause))
            if isinstance(cause, httpx2.ConnectError) and not self._reached and not is_tls:
                reason = (
                    f"{self.host} cannot be reached ({failure.reason}): this machine seems to be offline."
                )
                raise Offline(reason, retry_after=60.0) from None
            raise
        self._reached = True
        return response

    def _authorization(self, url: httpx2.URL) -> dict[str, str]:
        is_safe = self._is_endpoint(url) and (url.scheme == "https" or is_loopback(url.host))
        return {"Authorization": f"Bearer {self.access.token}"} if self.access.token and is_safe else {}

    def _is_endpoint(self, url: httpx2.URL) -> bool:
        def place(url: httpx2.URL) -> tuple[str, str, int]:
            return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)

        return place(url) == place(self._endpoint)

    def _check_url(self, url: httpx2.URL) -> None:
        """Raises HubError for a redirect out of bounds."""
        if self._is_endpoint(url):
            return
        if url.scheme not in ("http", "https") or url.userinfo:
            raise HubError(f"{self.host} redirects to an address that is not plain http or https.")
        if self._endpoint.scheme == "https" and url.scheme == "http":
            raise HubError(f"{self.host} redirects from https to http ({url.host}), which is refused.")
        address = address_of(url.host)
        if address is not None:
            self._check_address(address)

    def _peer_check(self, url: httpx2.URL) -> Callable[[str, dict[str, Any]], Awaitable[None]]:
        """An httpcore trace that checks the peer of each new connection before sending anything."""
        is_direct = True

        async def trace(event: str, info: dict[str, Any]) -> None:
            nonlocal is_direct
            if event.endswith("connect_tcp.started"):
                # The user chose the proxy, which resolves host names itself.
                is_direct = info.get("host") == url.host
            elif event.endswith("connect_tcp.complete") and is_direct:
                stream = info["return_value"]
                address = address_of(str(stream.get_extra_info("server_addr")[0]))
                if address is not None and self._is_endpoint(url):
                    self._hub_addresses.add(str(address))
                elif address is not None:
                    try:
                        self._check_address(address)
                    except HubError:
                        await stream.aclose()
                        raise

        return trace

    def _check_address(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
        """Allows public addresses and the hub's own; a hub on this machine may use any local port."""
        if address.is_global and not address.is_multicast:
            return
        hub_is_local = any(ipaddress.ip_address(known).is_loopback for known in self._hub_addresses)
        if str(address) in self._hub_addresses or (address.is_loopback and hub_is_local):
            return
        raise HubError(f"{self.host} redirects to {address}, a private address, which is refused.")


class HubResponse(msgspec.Struct, frozen=True):
    """A whole answer of a hub, which is small."""

    status: int
    headers: httpx2.Headers
    content: bytes


@contextlib.contextmanager
def _network_failures() -> Generator[None]:
    """Raises httpx errors as TransientFailure, with the original as the cause."""
    try:
        yield
    except httpx2.TimeoutException as error:
        kind = "connecting" if isinstance(error, httpx2.ConnectTimeout) else "the next bytes"
        raise TransientFailure(f"the time for {kind} ran out") from error
    except (httpx2.TransportError, httpx2.DecodingError) as error:
        raise TransientFailure(_reason(error)) from error


def _reason(error: Exception) -> str:
    """The message of the operating system or the peer, without the addresses that httpx adds."""
    if isinstance(error, httpx2.RemoteProtocolError) and "closed connection" in str(error):
        return "the connection was closed early"
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError):
            return f"TLS: {cause.reason or cause.strerror or 'failed'}".replace("_", " ").lower()
        if isinstance(cause, OSError) and cause.strerror:
            # asyncio puts the address into strerror; DNS errors have separate numbers.
            named = cause.errno if not isinstance(cause, socket.gaierror) else None
            return os.strerror(named) if named else cause.strerror
    return str(error) or type(error).__name__


def _causes(error: BaseException | None) -> Generator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds from Retry-After, as hubs write it; None if missing or in another form."""
    value = headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() and len(value) < 10 else None
