"""The process of a replica: its settings, its log, its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jan_serve.cluster import child as child_module
from jan_serve.cluster.child import Child, ChildEnded
from tests.support.fake_replica import COMMAND
from tests.support.processes import alive, wait_until


def settings(folder: Path, **more: object) -> dict[str, object]:
    return {"host": "127.0.0.1", "notes": str(folder), **more}


def test_it_ends_by_itself_when_asked(tmp_path: Path) -> None:
    child = Child(settings(tmp_path), COMMAND)
    assert child.url().startswith("http://127.0.0.1:")
    child.check()
    child.stop(5)
    assert (tmp_path / "ended").exists()
    child.stop(5)
    with pytest.raises(ChildEnded, match="status 0"):
        child.check()


def test_one_that_stays_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "_END_S", 0.05)
    child = Child(settings(tmp_path, stays=True), COMMAND)
    child.url()
    child.stop(0)
    assert not alive(child.pid)
    assert not (tmp_path / "ended").exists()


def test_a_failed_start_has_the_log_in_its_message(tmp_path: Path) -> None:
    child = Child(settings(tmp_path, fails=True), COMMAND)
    with pytest.raises(ChildEnded, match=r"status 4:\nthe settings came"):
        child.url()
    child.stop(0)


def test_it_gets_no_variable_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    child = Child(settings(tmp_path), COMMAND)
    child.url()
    wait_until((tmp_path / "variables").exists)
    child.stop(5)
    variables = json.loads((tmp_path / "variables").read_text(encoding="utf-8"))
    assert not {"RAY_AUTH_TOKEN", "OMP_NUM_THREADS"} & variables.keys()
    assert variables["CUDA_VISIBLE_DEVICES"] == "1"  # which accelerator Ray gave it
