"""Scores the translator on cases, in a process of its own: native code that crashes or hangs costs one case. A case
passes when its schema compiles as the server compiles it, every valid instance is accepted as `json.dumps` writes it,
and every invalid one is refused in every spelling. llguidance and the memory judge the grammar that the engine runs;
llama.cpp judges the GBNF, which has to accept nothing invalid either."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import struct
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from jan_serve.constraint.ast import Mode
from jan_serve.constraint.enforce import enforce
from jan_serve.constraint.json_schema.document import bundled
from jan_serve.constraint.print_gbnf import print_gbnf
from jan_serve.core.constraint import JsonSchemaConstraint, PropertyOrder
from jan_serve.core.uniqueness import Uniqueness
from jan_serve.errors import JanServeError
from jan_serve.text.uniqueness.check import State, UniquenessCheck
from tests.conformance.suites import Case, remotes
from tests.unit.constraint.grammars import grammar_in_rules

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
    from tests.conformance.uniqueness_oracle import UniquenessOracle

    # llama.cpp prints grammars that it refuses.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    gbnf, engine = LlamaCppOracle(Path(vocabulary)), UniquenessOracle()
    documents = remotes()
    pipe.send(None)
    while True:
        case = pipe.recv()
        schema = bundled(case.schema, documents)
        outcome = _judge(case, schema, engine)
        pipe.send(_judge_gbnf(case, schema, gbnf) or outcome)


def _judge(case: Case, schema: Any, oracle: Any) -> Outcome:
    """By the grammar that the engine runs."""
    started = time.process_time()
    try:
        constraint = JsonSchemaConstraint(schema, property_order=PropertyOrder.ANY)
        compiled = enforce(constraint).compiled
        matcher = oracle.compile(compiled.lark, compiled.uniqueness)
    except JanServeError as error:
        return Outcome(case.name, REFUSED, f"{error.code}: {error}"[:300], _since(started))
    except ValueError as error:
        return Outcome(case.name, CRASH, str(error), _since(started))
    milliseconds = _since(started)
    for number, (instance, valid) in enumerate(case.instances):
        if valid and not oracle.accepts(matcher, _plain(instance)):
            return Outcome(case.name, TOO_NARROW, f"instance {number}", milliseconds)
        if not valid and any(oracle.accepts(matcher, text) for text in _spellings(instance)):
            return Outcome(case.name, TOO_WIDE, f"instance {number}", milliseconds)
    return Outcome(case.name, PASS, "", milliseconds)


def _judge_gbnf(case: Case, schema: Any, oracle: Any) -> Outcome | None:
    """What is wrong with the GBNF of a schema; None where there is nothing, or no GBNF."""
    try:
        grammar, memory = grammar_in_rules(schema, mode=Mode.PRINTED)
        if memory.locations != Uniqueness().locations:
            return None
        sampler = oracle.compile(print_gbnf(grammar))
    except JanServeError:
        return None
    except ValueError as error:
        return Outcome(case.name, CRASH, str(error))
    try:
        for number, (instance, valid) in enumerate(case.instances):
            text = _plain(instance)
            if not valid and oracle.accepts(sampler, text) and _remembers(memory, text):
                return Outcome(case.name, TOO_WIDE, f"GBNF, instance {number}")
        return None
    finally:
        oracle.release(sampler)


def _remembers(memory: Uniqueness, text: str) -> bool:
    """Whether the memory of names takes the text."""
    return UniquenessCheck(memory).written(State(), text.encode()) is not None


def _plain(instance: Any) -> str:
    return json.dumps(instance, ensure_ascii=False)


def _spellings(instance: Any) -> list[str]:
    """The texts of an instance: plain, in lines, and with each character of its strings escaped."""
    plain = _plain(instance)
    return [
        plain,
        json.dumps(instance, ensure_ascii=False, indent=2),
        _STRING.sub(lambda found: _escaped(found[1]) + found[2], plain),
        # Names that are remembered have one spelling.
        _STRING.sub(lambda found: found[0] if found[2] else _escaped(found[1]), plain),
    ]


_STRING: Final = re.compile(r'("(?:[^"\\]|\\.)*")(:?)')
"""A string, and the colon after a name."""


def _escaped(quoted: str) -> str:
    code_units = json.loads(quoted).encode("utf-16-be")
    return '"' + "".join(f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", code_units)) + '"'


def _since(started: float) -> float:
    return 1e3 * (time.process_time() - started)
