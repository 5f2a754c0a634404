"""Settings about who may call the server."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr, field_validator

from jan_serve.config.fields import HOST_NAME, SecretList, StrList, access_setting

_ORIGIN = re.compile(r"\*\Z|[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/?#@]+\Z")
_ROUTE = re.compile(r"(/[A-Za-z0-9._-]+)+\Z")


def _each(pattern: re.Pattern[str], what: str) -> AfterValidator:
    def check(texts: tuple[str, ...]) -> tuple[str, ...]:
        for text in texts:
            if not pattern.match(text):
                raise ValueError(f"{text!r} is not {what}")
        return texts

    return AfterValidator(check)


_Hosts = Annotated[StrList, _each(HOST_NAME, "a host name (with an optional port)")]


class AccessOptions(BaseModel):
    """Keys, host names, origins and networks. Part of Settings."""

    model_config = ConfigDict(defer_build=True)

    api_keys: SecretList = access_setting(
        (),
        "Keys that callers may present as `Authorization: Bearer` or `x-api-key`. With several, cached"
        " prompts are shared only between requests of the same key. Where JAN_SERVE_API_KEYS is not set,"
        " JAN_SERVE_API_KEY sets a single key.",
        name="--api-key",
        metavar="KEY",
    )
    no_auth: bool = access_setting(
        False, "Listen beyond loopback without a key: anyone who can reach the port can use the server."
    )
    allowed_hosts: _Hosts = access_setting(
        (),
        "Names accepted in the Host header besides loopback names, the bound address and the address"
        " that the client connected to.",
        name="--allowed-host",
        metavar="NAME",
    )
    image_hosts: _Hosts = access_setting(
        (),
        "Hosts from which images that requests name by URL are fetched: NAME, or NAME:PORT."
        " Without any, none is fetched.",
        name="--image-host",
        metavar="NAME",
    )
    allowed_origins: Annotated[StrList, _each(_ORIGIN, "an origin: scheme://host, with an optional port")] = (
        access_setting(
            (),
            "Web origins that may call the API besides loopback ones and those of desktop applications"
            " (Tauri, Obsidian, VS Code). `*` allows every origin.",
            name="--allowed-origin",
            metavar="ORIGIN",
        )
    )

    open_networks: StrList = access_setting(
        (),
        "Networks, as `192.168.1.0/24`, whose clients need no key on `open_routes`: for programs that"
        " cannot send one. Requests that a proxy forwards always need it.",
        name="--open-network",
        metavar="NETWORK",
    )
    open_routes: Annotated[StrList, _each(_ROUTE, "a route such as /api/chat")] = access_setting(
        (
            "/api/version",
            "/api/tags",
            "/api/ps",
            "/api/show",
            "/api/chat",
            "/api/generate",
            "/api/embed",
            "/api/embeddings",
        ),
        "Routes, with all below them, that `open_networks` may use without a key.",
        name="--open-route",
        metavar="PATH",
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
