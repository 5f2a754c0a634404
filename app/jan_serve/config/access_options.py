"""Settings about who may call the server."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from jan_serve.config.flags import Flag
from jan_serve.config.value_types import HOST_NAME, SecretList, StrList

ACCESS_PANEL: Final = "Access"

_ORIGIN = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/?#@]+\Z")
_ROUTE = re.compile(r"(/[A-Za-z0-9._-]+)+\Z")


class AccessOptions(BaseModel):
    """Keys, host names, origins and networks. Part of Settings."""

    model_config = ConfigDict(defer_build=True)

    api_keys: Annotated[
        SecretList,
        Field(
            description="Keys that callers may present as `Authorization: Bearer` or `x-api-key`. With several, cached"
            " prompts are shared only between requests of the same key. Where JAN_SERVE_API_KEYS is not set,"
            " JAN_SERVE_API_KEY sets a single key."
        ),
        Flag(ACCESS_PANEL, name="--api-key", metavar="KEY"),
    ] = ()
    no_auth: Annotated[
        bool,
        Field(
            description="Listen beyond loopback without a key: anyone who can reach the port can use the server."
        ),
        Flag(ACCESS_PANEL),
    ] = False
    allowed_hosts: Annotated[
        StrList,
        Field(
            description="Names accepted in the Host header besides loopback names, the bound address and the address"
            " that the client connected to."
        ),
        Flag(ACCESS_PANEL, name="--allowed-host", metavar="NAME"),
    ] = ()
    image_hosts: Annotated[
        StrList,
        Field(
            description="Hosts from which images that requests name by URL are fetched: NAME, or NAME:PORT."
            " Without any, none is fetched."
        ),
        Flag(ACCESS_PANEL, name="--image-host", metavar="NAME"),
    ] = ()
    allowed_origins: Annotated[
        StrList,
        Field(
            description="Web origins that may call the API besides loopback ones and those of desktop applications"
            " (Tauri, Obsidian, VS Code). `*` allows every origin."
        ),
        Flag(ACCESS_PANEL, name="--allowed-origin", metavar="ORIGIN"),
    ] = ()

    open_networks: Annotated[
        StrList,
        Field(
            description="Networks, as `192.168.1.0/24`, whose clients need no key on `open_routes`: for programs that"
            " cannot send one. Requests that a proxy forwards always need it."
        ),
        Flag(ACCESS_PANEL, name="--open-network", metavar="NETWORK"),
    ] = ()
    open_routes: Annotated[
        StrList,
        Field(description="Routes, with all below them, that `open_networks` may use without a key."),
        Flag(ACCESS_PANEL, name="--open-route", metavar="PATH"),
    ] = (
        "/api/version",
        "/api/tags",
        "/api/ps",
        "/api/show",
        "/api/chat",
        "/api/generate",
        "/api/embed",
        "/api/embeddings",
    )

    @field_validator("api_keys")
    @classmethod
    def _check_keys(cls, keys: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for key in keys:
            text = key.get_secret_value()
            if not text:
                raise ValueError("an empty key is not a key")
            if not text.isascii() or not text.isprintable() or " " in text:
                raise ValueError("a key may hold printable ASCII characters without blanks only")
        return keys

    @field_validator("allowed_hosts", "image_hosts")
    @classmethod
    def _check_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not HOST_NAME.match(host):
                raise ValueError(f"{host!r} is not a host name (with an optional port)")
        return hosts

    @field_validator("allowed_origins")
    @classmethod
    def _check_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if origin != "*" and not _ORIGIN.match(origin):
                raise ValueError(f"{origin!r} is not an origin: scheme://host, with an optional port")
        return origins

    @field_validator("open_networks")
    @classmethod
    def _check_networks(cls, networks: tuple[str, ...]) -> tuple[str, ...]:
        for text in networks:
            try:
                network = ipaddress.ip_network(text)
            except ValueError:
                raise ValueError(f"{text!r} is not a network such as 192.168.1.0/24") from None
            if network.prefixlen == 0:
                raise ValueError(f"{text} is every address; --no-auth serves everyone")
        return networks

    @field_validator("open_routes")
    @classmethod
    def _check_routes(cls, routes: tuple[str, ...]) -> tuple[str, ...]:
        for route in routes:
            if not _ROUTE.match(route):
                raise ValueError(f"{route!r} is not a route such as /api/chat")
        return routes
