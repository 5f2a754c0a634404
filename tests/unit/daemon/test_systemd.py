"""systemd units, and the states that systemctl prints."""

from __future__ import annotations

import pytest

from jan_serve.daemon.plan import ServiceStatus
from jan_serve.daemon.systemd import Systemd, quoted
from tests.unit.daemon.specs import linux, plan_text


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("/usr/bin/jan-serve", "/usr/bin/jan-serve"),
        ("/opt/my programs/jan", '"/opt/my programs/jan"'),
        ("100%", "100%%"),
        ("$HOME", "$$HOME"),
        ('a"b\\', '"a\\"b\\\\"'),
        ("", '""'),
    ],
)
def test_words_of_exec_start_are_escaped(word: str, text: str) -> None:
    assert quoted(word) == text


SYSTEMD_RUNNING = """\
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
MainPID=4711

LoadState=not-found
ActiveState=inactive
SubState=dead
UnitFileState=
MainPID=0
"""


SYSTEMD_WAITING = """\
LoadState=loaded
ActiveState=inactive
SubState=dead
UnitFileState=static
MainPID=0

LoadState=loaded
ActiveState=active
SubState=listening
UnitFileState=enabled
"""


SYSTEMD_ABSENT = SYSTEMD_RUNNING.replace("LoadState=loaded", "LoadState=not-found")


@pytest.mark.parametrize(
    ("output", "state"),
    [
        (SYSTEMD_RUNNING, ServiceStatus(True, True, 4711, "active (running)")),
        (SYSTEMD_WAITING, ServiceStatus(True, False, None, "inactive (dead), its socket listens")),
        (SYSTEMD_ABSENT, None),
        ("Failed to connect to bus: No medium found", None),
        ("", None),
    ],
)
def test_systemd_states_are_parsed(output: str, state: ServiceStatus | None) -> None:
    assert Systemd().state(0, output) == state


def test_the_default_data_folder_needs_no_write_exception() -> None:
    unit = plan_text("", Systemd().install(linux("system", "at-login")))
    assert "ReadWritePaths" not in unit
