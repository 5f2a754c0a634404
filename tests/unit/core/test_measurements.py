from __future__ import annotations

from typing import Any

import msgspec
import pytest

from jan_serve.core.measurements import PROGRAMS, Certificate, Mark, SelfCheck, verdicts, worse

GB = 10**9
OLD = SelfCheck(
    version="1.0.0",
    llama_cpp="0.3.1",
    at=100.0,
    answers={"a": "1", "b": "2"},
    prompt_per_s=1000.0,
    tokens_per_s=100.0,
    devices={"CPU": 16 * GB, "CUDA0": 8 * GB},
    free_bytes=8 * GB,
)


def changed(**fields: Any) -> SelfCheck:
    return msgspec.structs.replace(OLD, version="1.1.0", llama_cpp="0.3.2", at=200.0, **fields)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (changed(), []),
        (
            changed(answers={"a": "1", "b": "3"}),
            ["answers differently than with version 1.0.0: b (llama.cpp"],
        ),
        (changed(answers={"b": "2", "c": "9"}), []),
        (changed(prompt_per_s=501.0, tokens_per_s=51.0), []),
        (
            changed(prompt_per_s=400.0),
            ["reads prompts slower than with version 1.0.0: 400 tokens/s, not 1000."],
        ),
        (changed(tokens_per_s=40.0), ["writes slower than with version 1.0.0: 40 tokens/s, not 100."]),
        (changed(devices={"CPU": 16 * GB}), ["The device CUDA0 is gone."]),
        (changed(devices={"CPU": 16 * GB, "CUDA0": 2 * GB}), ["CUDA0 has less memory"]),
        (changed(devices={**OLD.devices, "CUDA1": 1}), []),
        (changed(free_bytes=3 * GB), ["Less memory is free than with version 1.0.0: 3.0 GB, not 8.0 GB."]),
        (changed(free_bytes=3 * GB, tokens_per_s=1.0), ["writes slower", "Less memory"]),
    ],
)
def test_what_is_worse_is_named(now: SelfCheck, words: list[str]) -> None:
    found = worse(OLD, now)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


ALL = ("schema kept", "schema right", "10 tools", "50 tools", "tool result", "turns", "needle", "infill")


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
    assert found["codex"] == "Codex at 64k: yes, first token 40 s cold, 0.3 s warm"
    assert found["completion"] == "Editor completion at 64k: yes"


@pytest.mark.parametrize(
    ("given", "program", "expected"),
    [
        (certificate(n_ctx=8192), "claude", "Claude Code: no, 8,192 tokens of context (32,768 are needed)"),
        (certificate(**{"50_tools": 2}), "claude", "Claude Code at 64k: no, 50 tools 2 of 4"),
        (certificate(**{"50_tools": 2}), "codex", "Codex at 64k: yes, first token 40 s cold, 0.3 s warm"),
        (
            certificate(**{"10_tools": 0, "turns": 1}),
            "cline",
            "Cline at 64k: no, 10 tools 0 of 4, turns 1 of 4",
        ),
        (certificate(infill=-1), "completion", "Editor completion at 64k: no, infill was not possible"),
        (certificate(schema_right=3), "extraction", "Structured extraction at 64k: yes"),
        (certificate(schema_kept=2), "extraction", "Structured extraction at 64k: no, schema kept 2 of 4"),
        (certificate(n_ctx=49_152, cold_s=None, warm_s=None), "opencode", "opencode at 48k: yes"),
    ],
)
def test_what_is_missing_is_named(given: Certificate, program: str, expected: str) -> None:
    assert verdicts(given)[program] == expected


@pytest.mark.parametrize(("found", "enough"), [((1, 1, 0), True), ((1, 0, 1), False)])
def test_a_text_beyond_what_a_program_needs_does_not_count(found: tuple[int, ...], enough: bool) -> None:
    given = certificate(needle=-1)
    lengths = zip(found, (4000, 16_000, 130_000), strict=True)
    marks = (*given.marks, *(Mark("needle", right, 1, tokens=tokens) for right, tokens in lengths))
    verdict = verdicts(msgspec.structs.replace(given, marks=marks))["codex"]
    assert (": yes" in verdict) == enough
    assert enough or "needle 1 of 2" in verdict
