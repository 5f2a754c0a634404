"""How long schemas take to compile: `python -m tests.conformance.compile_times [--every N] [--slowest N]`. From a
schema of MaskBench to the grammar that llguidance has compiled, in milliseconds of CPU time: the translation in the
compiling process, and llguidance's share in the worker."""

from __future__ import annotations

import argparse
import gc
import sys
import threading
import time
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from jan_serve.constraint.enforce import enforce
from jan_serve.core.constraint import JsonSchemaConstraint
from jan_serve.engine.constraint.grammar_factory import STACK_BYTES, GrammarFactory
from jan_serve.engine.llama.model import LlamaModel
from jan_serve.errors import JanServeError
from tests.conformance.suites import SHARED, VOCABULARY, Case, load_suite

BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 20_000)


class Times(NamedTuple):
    """Times of one schema, in milliseconds of CPU time. refused: why it does not compile."""

    name: str
    translation: float
    llguidance: float = 0.0
    refused: str | None = None

    @property
    def total(self) -> float:
        return self.translation + self.llguidance


def measured(factory: GrammarFactory, case: Case) -> Times:
    """Compile one schema. The calling thread needs `STACK_BYTES` of stack."""
    started = time.thread_time()
    try:
        grammar = enforce(JsonSchemaConstraint(case.schema)).compiled
    except JanServeError as error:
        return Times(case.name, _since(started), refused=f"{error.code}: {error}")
    translation = _since(started)
    started = time.thread_time()
    try:
        factory.create(grammar)
    except JanServeError as error:
        return Times(case.name, translation, _since(started), f"{error.code}: {error}")
    return Times(case.name, translation, _since(started))


def report(every: int, slowest: int) -> None:
    """Print percentiles, a histogram and the slowest schemas."""
    factory = GrammarFactory(LlamaModel(str(VOCABULARY), vocab_only=True).vocab)
    while not factory.tables.complete:
        factory.tables.advance()
    cases = load_suite("maskbench", every)
    gc.freeze()  # a server has no suite that the collector walks through
    times = [measured(factory, case) for case in cases]
    served = [each for each in times if each.refused is None]
    refused = [each for each in times if each.refused is not None]
    for name, values in (
        ("translation", [each.translation for each in served]),
        ("llguidance", [each.llguidance for each in served]),
        ("both", [each.total for each in served]),
        ("refused", [each.total for each in refused]),
    ):
        shares = " ".join(f"p{share} {np.percentile(values, share):.1f}" for share in (50, 90, 99))
        sys.stdout.write(f"{name}: {len(values)} schemas, ms {shares} max {max(values):.0f}\n")
    within = (
        f"{bound}: {sum(low < each.total <= bound for each in served)}"
        for low, bound in pairwise((0, *BOUNDS_MS))
    )
    sys.stdout.write(f"compiled within ms: {', '.join(within)}\n")
    for each in sorted(times, key=lambda each: -each.total)[:slowest]:
        sys.stdout.write(
            f"    {each.name}: {each.translation:.0f} + {each.llguidance:.0f} {each.refused or ''}\n"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=1, help="only every N-th schema")
    parser.add_argument("--slowest", type=int, default=0, help="list so many")
    options = parser.parse_args()
    if not SHARED.is_dir():
        sys.stdout.write(f"the reference folder {SHARED.name} is not beside the repository: nothing to run\n")
        return 0
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=report, args=(options.every, options.slowest))
    thread.start()
    thread.join()
    return 0


def _since(started: float) -> float:
    return 1e3 * (time.thread_time() - started)


if __name__ == "__main__":
    sys.exit(main())
