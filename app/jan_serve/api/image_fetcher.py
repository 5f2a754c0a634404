"""Fetches images that requests name by URL, from the hosts that the configuration names."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from jan_serve import __version__
from jan_serve.errors import InvalidImage
from jan_serve.generation.ports import ImageFetcher
from jan_serve.http.guards.body import held_body
from jan_serve.image_files import MAX_FILE_BYTES

if TYPE_CHECKING:
    # Imported with the first URL: importing the HTTP client is slow.
    import httpx2

FETCH_S: Final = 15.0
_MAX_REDIRECTS: Final = 3
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


def image_fetcher(hosts: Collection[str]) -> ImageFetcher | None:
    """hosts: names, for the usual ports, or NAME:PORT. None if there are none.

    Fetched bytes count as those of the request's body do: the fetch raises Unavailable where there is no memory for
    them.
    A redirect leads to one of the hosts too, and no name to this machine itself or to what only its link reaches. No
    proxy, cookie or credential of this machine is used.
    """
    if not hosts:
        return None
    allowed = frozenset(host.lower() for host in hosts)

    async def fetch(url: str) -> bytes:
        import httpx2

        try:
            async with (
                asyncio.timeout(FETCH_S),
                httpx2.AsyncClient(follow_redirects=False, trust_env=False, timeout=FETCH_S) as client,
            ):
                return await _fetched(client, httpx2.URL(url), allowed)
        except TimeoutError:
            raise InvalidImage(f"the URL's host did not send it within {FETCH_S:g} s") from None
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol):
            raise InvalidImage("not a URL") from None
        except httpx2.HTTPError as error:
            raise InvalidImage(f"cannot be fetched: {str(error) or type(error).__name__}") from None

    return fetch


async def _fetched(client: httpx2.AsyncClient, url: httpx2.URL, allowed: Collection[str]) -> bytes:
    held = held_body.get()
    for _ in range(_MAX_REDIRECTS + 1):
        _check(url, allowed)
        headers = {
            "Host": url.netloc.decode("ascii"),
            "User-Agent": f"jan-serve/{__version__}",
            "Accept-Encoding": "identity",
            "Accept": "image/*",
        }
        # Connected to by the address that was checked: a second lookup may have another answer.
        there = url.copy_with(host=await _address(url, allowed))
        names = {"sni_hostname": url.raw_host.decode("ascii")}
        async with client.stream("GET", there, headers=headers, extensions=names) as response:
            if response.status_code in _REDIRECTS and "location" in response.headers:
                url = url.join(response.headers["location"])
                continue
            if response.status_code != 200:
                raise InvalidImage(
                    f"cannot be fetched: {url.host} answers with status {response.status_code}"
                )
            content = bytearray()
            async for piece in response.aiter_raw():
                content += piece
                if held is not None:
                    held.fetch(len(piece))
                if len(content) > MAX_FILE_BYTES:
                    raise InvalidImage(f"the file has more than {MAX_FILE_BYTES} bytes, which is the limit")
            return bytes(content)
    raise InvalidImage(f"cannot be fetched: more than {_MAX_REDIRECTS} redirects")


def _check(url: httpx2.URL, allowed: Collection[str]) -> None:
    if url.scheme not in ("http", "https"):
        raise InvalidImage("only http and https URLs are fetched")
    if url.userinfo:
        raise InvalidImage("the URL has a user name or a password")
    name = _named(url.host, url.port)
    if name not in allowed:
        raise InvalidImage(f"this server fetches no images from {name} (image_hosts names the hosts)")


async def _address(url: httpx2.URL, allowed: Collection[str]) -> str:
    """The address of its host. Raises InvalidImage, also for a name that leads to where only an address may."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            url.raw_host.decode("ascii"), None, type=socket.SOCK_STREAM
        )
    except OSError:
        raise InvalidImage(f"cannot be fetched: {url.host} is not known") from None
    addresses = [str(address[0]) for *_, address in found]
    if url.host != "localhost":
        for address in addresses:
            if _is_near(ip_address(address)) and _named(address, url.port) not in allowed:
                raise InvalidImage(
                    f"this server fetches no images from {_named(url.host, url.port)}, which leads to"
                    f" {address} (image_hosts names such an address itself)"
                )
    return addresses[0]


def _is_near(address: IPv4Address | IPv6Address) -> bool:
    """Whether it is this machine, or what only its link reaches, such as the metadata service of a cloud."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any((address.is_loopback, address.is_link_local, address.is_unspecified, address.is_multicast))


def _named(host: str, port: int | None) -> str:
    """The host as image_hosts names it."""
    host = f"[{host}]" if ":" in host else host
    return (host if port is None else f"{host}:{port}").lower()
