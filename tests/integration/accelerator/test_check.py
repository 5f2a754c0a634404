"""The check of an accelerator: which backend, which steps, and a report that says what failed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.accelerator import backends, steps


def test_real_tests_are_counted_and_failures_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "test_it.py"
    file.write_text("import os\ndef test_good(): assert os.environ['JAN_SERVE_TEST_LAYERS'] == 'all'\n"
                    "def test_bad(): assert 1 == 2\n")  # fmt: skip
    monkeypatch.setattr(steps.Check, "python", property(lambda _self: Path(sys.executable)))
    check = steps.Check(backends.BACKENDS["cuda"], tmp_path, tests=(str(file),))
    facts = steps.tests(check)
    assert (facts["status"], facts["tests"], facts["failures"]) == (1, 2, 1)
    assert facts["failed"][0].startswith("test_bad: ") and "assert 1 == 2" in facts["failed"][0]


def test_tests_that_cannot_be_run_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps.Check, "python", property(lambda _self: Path("/bin/false")))
    facts = steps.tests(steps.Check(backends.BACKENDS["cpu"], tmp_path))
    assert "pytest ended with 1" in facts["error"]
