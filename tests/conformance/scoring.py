"""Scores the translator on cases, in a process of its own: native code that crashes or hangs costs one case.

A case passes when its schema compiles, every valid instance is accepted as `json.dumps` writes it, and every invalid
one is refused. llama.cpp judges the GBNF, and a memory the names beside it; where items have to differ, llguidance and
the memory judge.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.conformance.suites import Case, remotes

PASS, REFUSED, TOO_NARROW, TOO_WIDE, CRASH, TIMEOUT = (
    "pass",
    "refused",
    "valid refused",
    "invalid accepted",
    "crash",
    "timeout",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case; `milliseconds` is the CPU time from the schema to the compiled grammar."""

    name: str
    status: str
    detail: str = ""
    milliseconds: float = 0.0


@dataclass(slots=True)
class Score:
    """Outcomes of one suite."""

    outcomes: list[Outcome] = field(default_factory=list[Outcome])

    def counts(self) -> Counter[str]:
        """Cases by status."""
        return Counter(outcome.status for outcome in self.outcomes)

    def named(self, *statuses: str) -> list[str]:
        """The cases with one of these statuses, with what happened."""
        return [f"{o.name}: {o.status}: {o.detail}" for o in self.outcomes if o.status in statuses]

    def percentile(self, share: float) -> float:
        """Milliseconds that this share of the compiled schemas stays below."""
        times = sorted(o.milliseconds for o in self.outcomes if o.milliseconds and o.status != REFUSED)
        return times[min(len(times) - 1, int(share * len(times)))] if times else 0.0


def score(cases: Sequence[Case], vocabulary: Path, *, timeout: float = 20.0) -> Score:
    """Run the cases one after the other. Blocks; `timeout` in seconds holds per case."""
    result = Score()
    judge = _Judge(vocabulary)
    try:
        for case in cases:
            result.outcomes.append(judge.outcome(case, timeout))
    finally:
        judge.close()
    return result


class _Judge:
    """The child process, started again after it died."""

    def __init__(self, vocabulary: Path) -> None:
        self._vocabulary = vocabulary
        self._context = multiprocessing.get_context("spawn")
        self._start()

    def _start(self) -> None:
        self._pipe, there = self._context.Pipe()
        self._process = self._context.Process(target=_serve, args=(there, str(self._vocabulary)), daemon=True)
        self._process.start()
        there.close()
        self._pipe.recv()

    def outcome(self, case: Case, timeout: float) -> Outcome:
        self._pipe.send(case)
        try:
            if self._pipe.poll(timeout):
                return self._pipe.recv()
            status = TIMEOUT
        except EOFError:
            status = CRASH
        self.close()
        self._start()
        return Outcome(case.name, status)

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection, vocabulary: str) -> None:
    from tests.conformance.llama_cpp_oracle import LlamaCppOracle
    from tests.conformance.memory_oracle import MemoryOracle

    # llama.cpp prints grammars that it refuses.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    plain, remembering = LlamaCppOracle(Path(vocabulary)), MemoryOracle()
    documents = remotes()
    pipe.send(None)
    while True:
        pipe.send(_judge(pipe.recv(), documents, plain, remembering))


def _judge(case: Case, documents: dict[str, Any], plain: Any, remembering: Any) -> Outcome:
    from jan_serve.core.text_memory import TextMemory
    from jan_serve.engine.constraint.json_memory import JsonMemory, State
    from jan_serve.errors import JanServeError
    from jan_serve.grammar import bundled, json_schema_with_memory, print_gbnf, print_lark

    schema = bundled(case.schema, documents)
    started = time.process_time()
    try:
        grammar, memory = json_schema_with_memory(schema)
        by_items = memory.places != TextMemory().places
        oracle = remembering if by_items else plain
        sampler = (
            remembering.compile(print_lark(grammar), memory)
            if by_items
            else plain.compile(print_gbnf(grammar))
        )
    except JanServeError as error:
        return Outcome(case.name, REFUSED, f"{error.code}: {error}"[:300], _since(started))
    except ValueError as error:
        return Outcome(case.name, CRASH, str(error), _since(started))
    milliseconds = _since(started)
    try:
        for number, (instance, valid) in enumerate(case.instances):
            text = json.dumps(instance, ensure_ascii=False)
            accepted = oracle.accepts(sampler, text)
            if accepted and not by_items:
                accepted = JsonMemory(memory).written(State(), text.encode()) is not None
            if accepted != valid:
                status = TOO_NARROW if valid else TOO_WIDE
                return Outcome(case.name, status, f"instance {number}", milliseconds)
        return Outcome(case.name, PASS, "", milliseconds)
    finally:
        oracle.release(sampler)


def _since(started: float) -> float:
    return 1e3 * (time.process_time() - started)
