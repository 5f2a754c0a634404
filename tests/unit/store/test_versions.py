"""From one version of what is on disk to the next."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import pytest

from jan_serve.store.versions import LaterVersion, Steps, latest, upgrade


def rename(content: MutableMapping[str, Any]) -> None:
    """1 to 2."""
    content["port"] = content.pop("tcp_port", 1)


def double(content: MutableMapping[str, Any]) -> None:
    """2 to 3."""
    content["port"] *= 2


STEPS: Steps = {1: rename, 2: double}


@pytest.mark.parametrize(
    ("content", "version"),
    [
        ({"tcp_port": 5}, 1),
        ({"tcp_port": 5, "v": 1}, 1),
        ({"port": 5, "v": 2}, 2),
        ({"port": 10, "v": 3}, 3),
    ],
)
def test_every_version_comes_to_the_latest(content: dict[str, Any], version: int) -> None:
    assert upgrade(content, "v", STEPS) == version
    assert content == {"port": 10, "v": 3}
    assert upgrade(content, "v", STEPS) == latest(STEPS)


def test_without_steps_nothing_changes() -> None:
    content: dict[str, Any] = {"a": 1}
    assert upgrade(content, "v", {}) == 1
    assert content == {"a": 1}


def test_a_later_version_is_left_alone() -> None:
    content: dict[str, Any] = {"v": 4}
    with pytest.raises(LaterVersion, match="version 4; this jan-serve knows versions up to 3"):
        upgrade(content, "v", STEPS)
    assert content == {"v": 4}


@pytest.mark.parametrize("version", [0, -1, "2", 1.5, True, None])
def test_invalid_versions(version: object) -> None:
    with pytest.raises(ValueError, match="v must be a whole number from 1 on"):
        upgrade({"v": version}, "v", STEPS)
