"""Workers that other tests of the session share are not this package's children."""

from __future__ import annotations

import pytest

from tests.support.processes import remember_children


@pytest.fixture(autouse=True)
def only_own_children() -> None:
    remember_children()
