"""Every command that asks a server, against one that requires a key."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.support.servers.managed import add_model
from tests.support.servers.served_app import ServedApp, served_app
from tests.unit.cli.conftest import Run

COMMANDS = [
    ("ps",),
    ("load", "alpha"),
    ("stop", "alpha"),
    ("stop", "--all"),
    ("logs",),
    ("logs", "--follow"),
    ("embed", "alpha", "x"),
    ("tokenize", "alpha", "x"),
    ("tokenize", "alpha", "--decode", "72"),
    ("run", "alpha", "!say x"),
]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServedApp]:
    folder = tmp_path_factory.mktemp("locked")
    add_model(folder, "alpha")
    with served_app(folder, api_keys=("the-right-key",)) as served:
        yield served


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_missing_or_wrong_key_is_rejected(
    run: Run, locked: ServedApp, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    # A public route shows that a server runs; with a wrong key, the command does not start another one.
    monkeypatch.setenv("JAN_SERVE_URL", locked.url)
    without = run(*words)
    assert (without.status, without.out) == (2, "")
    assert "requires an API key" in without.err
    assert "Set JAN_SERVE_API_KEY" in without.err
    monkeypatch.setenv("JAN_SERVE_API_KEY", "a-wrong-key")
    wrong = run(*words)
    assert (wrong.status, wrong.out) == (2, "")
    assert "rejects the API key from JAN_SERVE_API_KEY" in wrong.err
    assert "a-wrong-key" not in wrong.err


def test_the_right_key_is_accepted(run: Run, locked: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAN_SERVE_URL", locked.url)
    monkeypatch.setenv("JAN_SERVE_API_KEY", "the-right-key")
    assert run("run", "alpha", "!say x").out == "x\n"
