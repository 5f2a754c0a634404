"""Where commands look for the server: flag, variable, settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jan_serve.config import load_settings, server_address
from jan_serve.errors import SettingsError


@pytest.fixture(autouse=True)
def no_config_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "config.toml"
    config.write_text("")
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(config))


@pytest.mark.parametrize(
    ("flags", "url"),
    [
        ({}, "http://127.0.0.1:1337"),
        ({"port": 8080}, "http://127.0.0.1:8080"),
        ({"host": "0.0.0.0", "no_auth": True}, "http://127.0.0.1:1337"),
        ({"host": "::", "no_auth": True}, "http://[::1]:1337"),
        ({"host": "localhost"}, "http://localhost:1337"),
    ],
)
def test_the_configured_address(flags: dict[str, Any], url: str) -> None:
    assert server_address(load_settings(flags)).url == url


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://box:1", "http://box:1"),
        ("https://box.example/jan/", "https://box.example/jan"),
        ("box:8080", "http://box:8080"),
        ("http://box:1/v1", "http://box:1"),
        ("http://[::1]:5", "http://[::1]:5"),
    ],
)
def test_a_given_address(given: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = server_address(load_settings(), given)
    assert (found.url, found.origin) == (url, "--url")
    monkeypatch.setenv("JAN_SERVE_URL", given)
    loaded = load_settings()
    assert loaded.warnings == ()
    assert (server_address(loaded).url, server_address(loaded).origin) == (url, "JAN_SERVE_URL")
    assert server_address(loaded, "other:9").url == "http://other:9"


@pytest.mark.parametrize(
    "given",
    ["ftp://box", "http://", "http://box:x", "http://u:p@box", "http://b ox", "http://[::1", "box?x=1"],
)
def test_invalid_addresses(given: str) -> None:
    with pytest.raises(SettingsError, match=r"must (be an address such as|end with the host)"):
        server_address(load_settings(), given)


def test_any_free_port_is_not_known() -> None:
    with pytest.raises(SettingsError, match="--url"):
        server_address(load_settings({"port": 0}))


def test_the_first_key_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server_address(load_settings()).key is None
    monkeypatch.setenv("JAN_SERVE_API_KEYS", "first,second")
    found = server_address(load_settings())
    assert found.key is not None
    assert found.key.get_secret_value() == "first"
    assert found.key_origin == "JAN_SERVE_API_KEYS"
    assert "first" not in repr(found)
