"""Cline's providers.json: its other providers stay, and no key for another address is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jan_serve.editors.cline_file import set_provider

OURS = {"provider": "openai-compatible", "model": "m", "baseUrl": "http://127.0.0.1:1337/v1"}
TIME = "2026-01-02T03:04:05.000Z"


def file(**settings: Any) -> str:
    """As Cline writes it, with a provider beside."""
    providers: dict[str, Any] = {
        "anthropic": {"settings": {"provider": "anthropic", "apiKey": "sk-a"}, "updatedAt": TIME},
    }
    if settings:
        entry = {"settings": {"provider": "openai-compatible", **settings}, "updatedAt": TIME}
        providers["openai-compatible"] = {**entry, "tokenSource": "manual"}
    document = {"version": 1, "lastUsedProvider": "anthropic", "modes": {}, "providers": providers}
    return json.dumps(document, indent=2) + "\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, OURS),
        ({"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "none", "model": "x"}, OURS),
        (
            {"baseUrl": OURS["baseUrl"], "apiKey": "our-key", "timeout": 9, "model": "x"},
            {**OURS, "apiKey": "our-key", "timeout": 9},
        ),
    ],
    ids=["new", "another address", "the same address"],
)
def test_the_provider_is_set_and_all_else_stays(before: dict[str, Any], after: dict[str, Any]) -> None:
    text = file(**before)
    new = set_provider(text, OURS)
    expected = json.loads(text)
    merged = json.loads(new)
    entry = merged["providers"].pop("openai-compatible")
    expected["providers"].pop("openai-compatible", None)
    assert merged == expected
    assert entry["settings"] == after
    assert entry["updatedAt"] == (TIME if before else "1970-01-01T00:00:00.000Z")
    assert set_provider(new, OURS) == new


def test_a_key_for_another_address_is_not_lost() -> None:
    text = file(baseUrl="https://paid.example/v1", apiKey="sk-paid")
    with pytest.raises(ValueError, match=r"a key for https://paid\.example/v1") as caught:
        set_provider(text, OURS)
    assert "sk-paid" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [("[]", "not of version 1"), ('{"version": 2}', "not of version 1"), ("{", "line 1")],
)
def test_other_files_are_rejected(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        set_provider(text, OURS)


def test_malformed_providers_are_rejected() -> None:
    with pytest.raises(ValueError, match="not an object"):
        set_provider('{"version": 1, "providers": []}', OURS)
