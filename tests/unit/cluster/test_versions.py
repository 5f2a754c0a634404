"""Machines with other versions are named."""

from __future__ import annotations

from jan_serve import __version__
from jan_serve.cluster.versions import Versions, differences, versions_here


def test_equal_machines_have_no_difference() -> None:
    here = versions_here("2.60.0")
    assert here.jan_serve == __version__
    assert differences(here, [("10.0.0.2", versions_here("2.60.0"))]) == []


def test_each_other_machine_is_named_with_what_it_has() -> None:
    here = Versions("3.11.7", "2.60.0", "1.0")
    others = [
        ("10.0.0.2", Versions("3.11.7", "2.60.0", "0.9")),
        ("10.0.0.3", Versions("3.11.8", "2.60.0", "1.0")),
        ("10.0.0.4", here),
    ]
    older, other_python = differences(here, others)
    assert older.startswith("10.0.0.2 has Python 3.11.7, Ray 2.60.0, jan-serve 0.9")
    assert "this machine has Python 3.11.7, Ray 2.60.0, jan-serve 1.0" in older
    assert other_python.startswith("10.0.0.3 has Python 3.11.8")
