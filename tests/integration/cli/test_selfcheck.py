"""`jan-serve selfcheck` with the built-in model in a real worker, and where its result is shown."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from jan_serve import __version__
from jan_serve.cli.main import main
from jan_serve.store.measurements import SelfChecks
from tests.support.clients.raw_http import get
from tests.support.servers.served import serving

pytestmark = [pytest.mark.integration, pytest.mark.model]


@pytest.fixture
def checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SelfChecks:
    """The checks of the data folder of a configuration that commands find."""
    config = tmp_path / "config.toml"
    config.write_text('data_dir = "data"\nn_ctx = 64\n', encoding="utf-8")
    monkeypatch.setenv("JAN_SERVE_CONFIG", str(config))
    return SelfChecks(tmp_path / "data")


def test_a_new_version_is_compared_with_the_last_one(
    checks: SelfChecks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["selfcheck", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    (first,) = checks.all()
    assert (shown["version"], shown["compared_with"], shown["findings"]) == (__version__, None, [])
    assert len(set(first.answers.values())) == 3
    assert min(first.prompt_per_s, first.tokens_per_s) > 0
    kept = [path for path in (tmp_path / "data" / "cache").rglob("*") if path.suffix != ".lock"]
    assert kept == [], "states of one version must not answer for another"

    # As a version before recorded it: one answer was another one, and it had a device that is gone.
    answers = {**first.answers, "a list": "0" * 64}
    devices = {**first.devices, "CUDA7": 8 * 10**9}
    checks.put(msgspec.structs.replace(first, version="0.0.1", at=1.0, answers=answers, devices=devices))
    assert main(["selfcheck"]) == 1
    told = capsys.readouterr().err
    assert "answers differently than with version 0.0.1: a list" in told
    assert "The device CUDA7 is gone." in told
    assert checks.all()[-1].answers == first.answers

    assert main(["doctor", "--json"]) == 0
    doctor = json.loads(capsys.readouterr().out)
    assert f"with version {__version__}, " in doctor["facts"]["selfcheck"]
    assert any("The device CUDA7 is gone." in warning for warning in doctor["warnings"])
    with serving(tmp_path, "--port", "0") as served:
        health = get(served.url(), "/health").json()
    assert (health["selfcheck"]["version"], health["selfcheck"]["compared_with"]) == (__version__, "0.0.1")
    assert "The device CUDA7 is gone." in health["selfcheck"]["findings"]
    assert "answers" not in health["selfcheck"]
