"""The part of the Windows service that runs anywhere: a stop reaches the server at any time."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from jan_serve.daemon.executor import ServiceFailed
from jan_serve.daemon.win_service import StopRelay, host_service


def test_an_early_stop_waits_until_the_server_listens() -> None:
    stopped: list[str] = []
    relay = StopRelay(lambda seconds: None)
    relay.request_stop()
    assert stopped == []
    relay.listening(lambda: stopped.append("stop"))
    assert stopped == ["stop"]


def test_a_stop_of_a_listening_server() -> None:
    stopped: list[str] = []
    waits: list[float] = []
    relay = StopRelay(waits.append)
    relay.listening(lambda: stopped.append("stop"))
    relay.alive(0)
    assert stopped == []
    relay.request_stop()
    relay.stopping(30)
    assert (stopped, waits) == (["stop"], [45])


@pytest.mark.skipif(find_spec("servicemanager") is not None, reason="pywin32 is here")
def test_missing_pywin32_is_reported() -> None:
    with pytest.raises(ServiceFailed, match="pip install"):
        host_service(lambda observer: 0)
