"""For which programs a certificate is enough, and why not."""

from __future__ import annotations

import pytest

from jan_serve.core.measurements.certificate import PROGRAMS, Certificate, Mark, verdicts

ALL = ("schema", "10 tools", "50 tools", "turns", "needle", "infill")


def certificate(
    n_ctx: int = 65_536, cold_s: float | None = 40.0, warm_s: float | None = 0.3, **right: int
) -> Certificate:
    """One with four right cases of four, but for the tasks in `right`; a negative number leaves a task out."""
    found = {task: right.get(task.replace(" ", "_"), 4) for task in ALL}
    marks = tuple(Mark(task, number, 4) for task, number in found.items() if number >= 0)
    return Certificate(
        model="m", version="1", at=0.0, n_ctx=n_ctx, marks=marks, prompt=20_000, cold_s=cold_s, warm_s=warm_s
    )


def test_all_that_is_needed() -> None:
    found = verdicts(certificate())
    assert set(found) == {needs.program for needs in PROGRAMS}
    assert found["codex"] == "yes: first token after 40.0 s, later 0.3 s"
    assert found["editor completion"] == "yes"


@pytest.mark.parametrize(
    ("given", "program", "expected"),
    [
        (certificate(n_ctx=8192), "claude", "no: its context has 8,192 tokens, and 32,768 are needed"),
        (certificate(**{"50_tools": 2}), "claude", "no: 50 tools: 2 of 4"),
        (certificate(**{"50_tools": 2}), "codex", "yes: first token after 40.0 s, later 0.3 s"),
        (certificate(**{"10_tools": 0, "turns": 1}), "cline", "no: 10 tools: 0 of 4, turns: 1 of 4"),
        (certificate(infill=-1), "editor completion", "no: infill was not possible"),
        (certificate(schema=3), "structured extraction", "yes"),
        (certificate(cold_s=None, warm_s=None), "opencode", "yes"),
    ],
)
def test_what_is_missing_is_named(given: Certificate, program: str, expected: str) -> None:
    assert verdicts(given)[program] == expected
