"""launchd's property lists, and the states that launchctl prints."""

from __future__ import annotations

import plistlib

from jan_serve.daemon.launchd import Launchd, property_list
from jan_serve.daemon.plan import ServiceStatus
from tests.unit.daemon.specs import mac


def test_property_lists_are_valid() -> None:
    content = plistlib.loads(property_list(mac("system", "on-demand")).encode())
    assert content["ProgramArguments"][-2:] == [
        "--config",
        "/Library/Application Support/jan-serve/config.toml",
    ]
    assert content["UserName"] == "ada"
    assert content["Sockets"]["Listener"]["SockServiceName"] == "1337"
    assert "KeepAlive" not in content


LAUNCHD_RUNNING = """\
gui/501/ai.jan.serve = {
\tactive count = 1
\tpath = /Users/ada/Library/LaunchAgents/ai.jan.serve.plist
\tstate = running

\tprogram = /opt/homebrew/bin/jan-serve
\tpid = 812
\tproperties = {
\t\tpid = 1
\t}
}
"""


def test_launchd_states_are_parsed() -> None:
    assert Launchd().state(0, LAUNCHD_RUNNING) == ServiceStatus(True, True, 812, "running")
    waiting = LAUNCHD_RUNNING.replace("running", "waiting").replace("\tpid = 812\n", "")
    assert Launchd().state(0, waiting) == ServiceStatus(True, False, None, "waiting")
    assert Launchd().state(113, 'Could not find service "ai.jan.serve"') is None
