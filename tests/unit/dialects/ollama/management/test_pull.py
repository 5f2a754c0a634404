"""Lines of a pull, file by file."""

from __future__ import annotations

from jan_serve.core.pull_step import PulledFile, PullStep
from jan_serve.dialects.ollama.management.pull import PullLines

FILES = (PulledFile("mmproj.gguf", 10, "a" * 64), PulledFile("m.gguf", 20, "b" * 64))


def said(*steps: PullStep) -> list[tuple[str, int | None]]:
    lines = PullLines()
    return [(line["status"], line.get("completed")) for step in steps for line in lines.chunks(step)]


def step(received: int, *, note: str | None = None, done: bool = False) -> PullStep:
    return PullStep("m", FILES, received, note, done)


def test_bytes_belong_to_the_files_in_order() -> None:
    first, second = f"pulling {'a' * 12}", f"pulling {'b' * 12}"
    assert said(step(0), step(4), step(4), step(10, note="retrying"), step(25), step(30, done=True)) == [
        ("pulling manifest", None),
        (first, 0),
        (first, 4),
        ("retrying", None),
        (second, 0),
        (second, 15),
        (first, 10),
        (second, 20),
        ("verifying sha256 digest", None),
        ("writing manifest", None),
        ("success", None),
    ]


def test_a_model_that_is_there_already() -> None:
    statuses = [status for status, _ in said(step(30, done=True))]
    assert (statuses[0], statuses[-1]) == ("pulling manifest", "success")
