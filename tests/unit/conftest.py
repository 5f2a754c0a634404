"""Unit tests start no process."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.no_processes import no_processes


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Generator[None]:
    with no_processes():
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call() -> Generator[None]:
    with no_processes():
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None]:
    with no_processes():
        yield
