"""Imports without the garbage collector, and what a process does not import."""

from __future__ import annotations

import gc

from jan_serve.quick_imports import quick_imports


def test_the_collector_does_not_run_during_imports_and_does_not_visit_what_they_made() -> None:
    frozen = gc.get_freeze_count()
    with quick_imports():
        assert not gc.isenabled()
        made = [object()]
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen
    assert made
