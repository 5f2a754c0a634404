"""What may be said about who calls the server."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from jan_serve.config.access_options import AccessOptions


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("api_keys", ["k", "sk-'\"~!,{}"]),
        ("allowed_hosts", ["a.example", "b.example:8000", "[::1]:80"]),
        ("allowed_origins", ["*", "https://a.example:8443", "tauri://localhost", "chrome-extension://abc"]),
        ("open_networks", ["192.168.1.0/24", "10.0.0.5", "fe80::/10"]),
        ("open_routes", ["/api/chat", "/v1", "/a.b/c_d-e"]),
    ],
)
def test_lists_are_kept_as_they_are(field: str, values: list[str]) -> None:
    options = AccessOptions.model_validate({field: values})
    kept: tuple[Any, ...] = getattr(options, field)
    assert [item if isinstance(item, str) else item.get_secret_value() for item in kept] == values


WRONG: list[tuple[str, str, str]] = [
    ("allowed_hosts", "http://a", "'http://a' is not a host name"),
    ("allowed_hosts", "a/b", "is not a host name"),
    ("allowed_hosts", "*", "is not a host name"),
    ("allowed_origins", "example.org", "is not an origin"),
    ("allowed_origins", "http://user@example.org", "is not an origin"),
    ("allowed_origins", "http://example.org/", "is not an origin"),
    ("allowed_origins", "http://example.org?", "is not an origin"),
    ("allowed_origins", "http://*.example.org extra", "is not an origin"),
    ("allowed_origins", "null", "is not an origin"),
    ("open_networks", "192.168.1.1/24", "is not a network such as"),
    ("open_networks", "192.168.1.0/33", "is not a network such as"),
    ("open_networks", "example.org", "is not a network such as"),
    ("open_networks", "0.0.0.0/0", "is every address; --no-auth serves everyone"),
    ("open_networks", "::/0", "is every address"),
    ("open_routes", "/", "is not a route such as"),
    ("open_routes", "api/chat", "is not a route such as"),
    ("open_routes", "/api/", "is not a route such as"),
    ("open_routes", "/api//chat", "is not a route such as"),
    ("open_routes", "/api/{model}", "is not a route such as"),
    ("open_routes", "/api/chat\n", "is not a route such as"),
]


@pytest.mark.parametrize(("field", "value", "message"), WRONG)
def test_a_wrong_item_is_named(field: str, value: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message) as refused:
        AccessOptions.model_validate({field: [value]})
    assert [error["loc"] for error in refused.value.errors()] == [(field,)]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "an empty key is not a key"),
        (" ", "printable ASCII characters without blanks"),
        ("a b", "printable ASCII characters without blanks"),
        ("schlüssel", "printable ASCII characters without blanks"),
        ("tab\t", "printable ASCII characters without blanks"),
        ("new\nline", "printable ASCII characters without blanks"),
    ],
)
def test_a_key_fits_in_a_header(key: str, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        AccessOptions.model_validate({"api_keys": ["good-secret", key]})
    [error] = refused.value.errors()
    assert error["loc"] == ("api_keys",) and message in error["msg"]


def test_networks_open_only_routes_of_answers_by_default() -> None:
    """Ollama's routes that delete, pull or write stay closed."""
    options = AccessOptions.model_validate({})
    assert options.open_networks == () and options.api_keys == () and not options.no_auth
    assert not {"/api/pull", "/api/delete", "/api/create", "/api/copy"} & set(options.open_routes)
    assert not any(route in ("/", "/api") for route in options.open_routes)
