"""The address and key that commands use to reach a running server."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

import msgspec
from pydantic import SecretStr

from jan_serve.config.settings_loader import URL_VARIABLE, LoadedSettings
from jan_serve.errors import SettingsError

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class ServerAddress(msgspec.Struct, frozen=True):
    """url: without a trailing slash. origin, key_origin: the sources of the values."""

    url: str
    origin: str
    key: SecretStr | None
    key_origin: str


def server_address(loaded: LoadedSettings, url: str | None = None) -> ServerAddress:
    """`url` (--url), else JAN_SERVE_URL, else the configured host and port; with the first configured key.

    Raises SettingsError.
    """
    settings = loaded.settings
    key = settings.api_keys[0] if settings.api_keys else None
    key_origin = loaded.origins.get("api_keys", "default")
    for origin, value in (("--url", url), (URL_VARIABLE, os.environ.get(URL_VARIABLE))):
        if value:
            return ServerAddress(checked_url(value, origin), origin, key, key_origin)
    if settings.port == 0:
        raise SettingsError(
            "port: 0 is any free port, which is not known here: --url says where the server is"
        )
    host = _WILDCARDS.get(settings.host, settings.host)
    bracketed = f"[{host}]" if ":" in host else host
    origin = loaded.origins.get("port") or loaded.origins.get("host") or "default"
    return ServerAddress(f"http://{bracketed}:{settings.port}", origin, key, key_origin)


def has_address(loaded: LoadedSettings, url: str | None = None) -> bool:
    """False if no URL is set and port 0 leaves the port unknown."""
    return bool(url or os.environ.get(URL_VARIABLE) or loaded.settings.port)


def checked_url(url: str, origin: str) -> str:
    address = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(address)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a non-numeric port, an open bracket
        valid = False
    else:
        valid = valid and not (parts.query or parts.fragment or "@" in parts.netloc)
    if not valid or not address.isascii() or not address.isprintable() or " " in address:
        raise SettingsError(f"{origin}: {url!r} is not an address such as http://127.0.0.1:1337")
    return address.rstrip("/").removesuffix("/v1")
