"""What keeps batches from working, and since when they work again."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from jan_serve.api.batch_conditions import BatchConditions, on_battery
from jan_serve.http.lifecycle import Lifecycle
from tests.support.engine.fake_client import FakeModels
from tests.support.servers.fronts import make_settings

NIGHT = "22:00-06:00"


@pytest.mark.parametrize(
    ("settings", "hour", "drains", "reason"),
    [
        ({}, 12, False, None),
        ({}, 12, True, "batch_on_battery"),
        ({"batch_on_battery": True}, 12, True, None),
        ({"batch_hours": NIGHT}, 23, False, None),
        ({"batch_hours": NIGHT}, 5, False, None),
        ({"batch_hours": NIGHT}, 6, False, "batch_hours"),
        ({"batch_hours": NIGHT}, 12, True, "batch_hours"),
        ({"batch_hours": NIGHT}, 23, True, "batch_on_battery"),
        ({"batch_hours": NIGHT, "batch_on_battery": True}, 23, True, None),
    ],
)
def test_the_reason_names_its_setting(
    settings: dict[str, Any], hour: int, drains: bool, reason: str | None
) -> None:
    conditions = BatchConditions(
        make_settings(**settings),
        FakeModels(),
        Lifecycle(),
        now=lambda: datetime(2026, 11, 28, hour, tzinfo=UTC),
        on_battery=lambda: drains,
    )
    found = conditions.pause("fake")
    assert (found is None) == (reason is None)
    assert reason is None or reason in str(found)


@pytest.mark.parametrize(
    ("battery", "drains"),
    [
        (None, False),
        (SimpleNamespace(power_plugged=None), False),
        (SimpleNamespace(power_plugged=True), False),
        (SimpleNamespace(power_plugged=False), True),
    ],
)
def test_a_machine_drains_if_it_says_so(
    monkeypatch: pytest.MonkeyPatch, battery: object, drains: bool
) -> None:
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert on_battery() == drains
    monkeypatch.delattr(psutil, "sensors_battery")
    assert not on_battery()
