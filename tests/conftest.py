"""What every test shares: asyncio as anyio's backend, how much hypothesis draws, and no processes in tests/unit."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# The processes of the tests would inherit what a shell ignores in the background (SIGINT) and nohup (SIGHUP).
if threading.current_thread() is threading.main_thread():
    for name, handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)

settings.register_profile("local", deadline=None, print_blob=True)
settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci" if os.environ.get("CI") else "local")

BY_DAY = 30
"""Examples of a property. With TEST_DRAWS in the environment: what it declares, or TEST_DRAWS if that is more."""
_DRAWN = "_hypothesis_internal_use_settings"
"""Where hypothesis keeps the settings of a test."""


LONG = {"chaos", "clients", "conformance", "page", "long"}
"""Folders that `make test-long` runs whole."""


def pytest_itemcollected(item: pytest.Item) -> None:
    if not LONG.isdisjoint(item.nodeid.split("/")):
        item.add_marker("long")
    test: Any = getattr(item, "obj", None)
    declared: settings | None = getattr(test, _DRAWN, None)
    if declared is None:
        return
    wanted = os.environ.get("TEST_DRAWS")
    count = max(declared.max_examples, int(wanted)) if wanted else min(declared.max_examples, BY_DAY)
    setattr(test, _DRAWN, settings(declared, max_examples=count))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """A collection makes hundreds of thousands of objects, and garbage of none of them: no search for it until the end,
    and later ones leave them out."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 10, 50)
        gc.enable()


@pytest.fixture
def anyio_backend() -> str:
    """uvicorn and the supervisor run on asyncio, so the tests do too."""
    return "asyncio"


@pytest.fixture(autouse=True)
def no_user_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own variables must not decide what a test sees."""
    borrowed = ("HF_TOKEN", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "JAN_DATA_FOLDER")
    for name in [name for name in os.environ if name.startswith("JAN_SERVE_") or name in borrowed]:
        monkeypatch.delenv(name)
