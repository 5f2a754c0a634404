"""Judges every request by what happened meanwhile, and what is left of the run when it is over."""

from __future__ import annotations

import fcntl
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import psutil

from tests.chaos.client import End, Outcome
from tests.chaos.questions import CANARY, openai_error
from tests.chaos.world import Window, World, overlap

_SLACK_S: Final = 5.0
"""A request that began this long after a fault may still meet it: a list of files that was read before."""
_TEMPORARY: Final = (".tmp", ".part", ".incomplete")


def findings(outcomes: Iterable[Outcome], golden: Mapping[str, str], world: World) -> list[str]:
    """What must not be. golden: answers by the question's key."""
    return [text for outcome in outcomes if (text := _wrong(outcome, golden, world)) is not None]


def _wrong(outcome: Outcome, golden: Mapping[str, str], world: World) -> str | None:
    question = outcome.question
    where = f"{question.name}, which {outcome.manner}, at {outcome.start:.1f} to {outcome.end:.1f}"
    whole = golden[question.key]
    match outcome.kind:
        case End.LEFT:
            return None
        case End.ANSWER:
            if outcome.text == whole or _is_the_defaults(outcome, world):
                return None
            return f"{where}: another answer: {outcome.text!r} for {whole!r}"
        case End.CUT:
            # Only a server that was killed may leave a request without an end. Where it has no descriptor for another
            # connection, libuv closes that at once.
            unanswered = outcome.status == 0 and overlap(world.shortages, outcome.start, outcome.end)
            if unanswered or overlap(world.kills, outcome.start, outcome.end):
                return None
            return f"{where}: cut ({outcome.detail})"
        case End.LOST | End.WRONG:
            return f"{where}: {outcome.kind}, status {outcome.status}: {outcome.detail}"
        case End.ERROR:
            if question.is_stream and not whole.startswith(outcome.text):
                return f"{where}: another answer before the error: {outcome.text!r} for {whole!r}"
            return None if _is_due(outcome, world) else f"{where}: {outcome.status} {outcome.detail}"


def _is_the_defaults(outcome: Outcome, world: World) -> bool:
    """Whether the configured model may have answered: it does on OpenAI's routes for models that are not there."""
    file = f"{outcome.question.model}.gguf"
    windows = [window for window, removed in world.removals if removed == file]
    is_openais = outcome.question.error is openai_error
    return is_openais and overlap(_longer(windows), outcome.start, outcome.end)


def _is_due(outcome: Outcome, world: World) -> bool:
    """Whether this error may come: never the client's fault, unless a file of its model is gone or damaged."""
    if "internal_error" in outcome.detail:
        return False
    if outcome.status >= 500 or outcome.status in (200, 429):
        return True
    model = outcome.question.model
    windows = [window for window, file in world.damages if file in (f"{model}.gguf", f"mmproj-{model}.gguf")]
    near = overlap(_longer(windows), outcome.start, outcome.end)
    return near and outcome.status in (400, 404, 422)


def _longer(windows: Iterable[Window]) -> list[Window]:
    return [(start, end + _SLACK_S) for start, end in windows]


def counts(outcomes: Iterable[Outcome]) -> str:
    """How requests ended, and with which errors."""
    ends: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    for outcome in outcomes:
        ends[outcome.kind] += 1
        if outcome.kind is End.ERROR:
            errors[f"{outcome.status} {outcome.detail[:90]}"] += 1
    shown = [f"  {count:5} {text}" for text, count in errors.most_common(40)]
    return "\n".join([", ".join(f"{count} {end}" for end, count in ends.most_common()), *shown])


def leftovers(world: World) -> list[str]:
    """Files, locks and words that a server in order does not leave, whether it runs or has ended."""
    found = [f"a temporary file: {file}" for file in _files(world.temporary)]
    for folder in (world.data, world.models):
        for file in _files(folder):
            if file.name.endswith(_TEMPORARY) or file.name.startswith(".tmp"):
                found.append(f"a temporary file: {file}")
            if file.suffix == ".lock" and _is_locked(file):
                found.append(f"a lock that is held: {file}")
    output = world.log.read_text(encoding="utf-8", errors="replace")
    if "Traceback" in output:
        place = output.index("Traceback")
        found.append(f"a traceback in the log: {output[max(0, place - 500) : place + 3000]}")
    if CANARY in output:
        found.append(f"a prompt in the log: {output[max(0, output.index(CANARY) - 200) :][:400]}")
    return found


def zombies(world: World) -> list[str]:
    """Children of the running server that nobody reaped."""
    return [f"a zombie: {child.pid}" for child in world.children() if child.status() == psutil.STATUS_ZOMBIE]


def _files(folder: Path) -> list[Path]:
    return [Path(place) / name for place, _, names in os.walk(folder) for name in names]


def _is_locked(file: Path) -> bool:
    with file.open("rb+") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
