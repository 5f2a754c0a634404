from __future__ import annotations

import sys

import pytest

from jan_serve.http.connection import connection_limit

if sys.platform == "win32":
    pytest.skip("has no limit on descriptors", allow_module_level=True)
import resource


@pytest.mark.parametrize(
    ("descriptors", "connections"),
    [(64, 32), (1024, 512), (2000, 1000), (1_048_576, 1000), (resource.RLIM_INFINITY, 1000)],
)
def test_half_of_the_descriptors_and_at_most_a_thousand(
    descriptors: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def getrlimit(which: int) -> tuple[int, int]:
        assert which == resource.RLIMIT_NOFILE
        return descriptors, descriptors

    monkeypatch.setattr(resource, "getrlimit", getrlimit)
    assert connection_limit() == connections
