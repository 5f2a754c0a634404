"""rpc-server: what it refuses before it listens."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import Run


def test_other_machines_are_refused_without_a_network(run: Run) -> None:
    answer = run("rpc-server", "--host", "0.0.0.0")
    assert answer.status == 2
    assert "neither authentication nor encryption" in answer.err
    assert "--allow" in answer.err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--host", "::1"), "llama.cpp reaches its devices by IPv4 only"),
        (("--host", "0.0.0.0", "--allow", "somewhere"), "'somewhere' is not a network"),
        (("--host", "0.0.0.0", "--allow", "0.0.0.0/0"), "is every address"),
        (("--memory", "much"), "'much' is not a size such as 24GB"),
    ],
)
def test_wrong_options(run: Run, words: tuple[str, ...], expected: str) -> None:
    answer = run("rpc-server", *words)
    assert answer.status == 2
    assert expected in " ".join(answer.err.split())
