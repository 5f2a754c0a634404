"""The address and key that commands use to reach a running server."""

from __future__ import annotations

import os

import msgspec
from pydantic import SecretStr

from jan_serve.config.fields import check_url
from jan_serve.config.settings_loader import URL_VARIABLE, LoadedSettings
from jan_serve.core.hosts import url_of_host
from jan_serve.errors import SettingsError


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
    origin = loaded.origins.get("port") or loaded.origins.get("host") or "default"
    return ServerAddress(url_of_host(settings.host, settings.port), origin, key, key_origin)


def has_address(loaded: LoadedSettings, url: str | None = None) -> bool:
    """False if no URL is set and port 0 leaves the port unknown."""
    return bool(url or os.environ.get(URL_VARIABLE) or loaded.settings.port)


def checked_url(url: str, origin: str) -> str:
    """The URL without a slash or `/v1` at the end; http if it names no scheme. Raises SettingsError."""
    try:
        address = check_url(url if "://" in url else f"http://{url}", "http://127.0.0.1:1337")
    except ValueError as error:
        raise SettingsError(f"{origin}: {url!r} {error}") from None
    return address.removesuffix("/v1")
