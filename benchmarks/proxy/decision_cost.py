"""What one decision costs: `python -m benchmarks.proxy.decision_cost`. It must not grow with the number of nodes.

CPU time of this thread, from the prompt's parts to the counted assignment; the JSON of the body is decoded before.
"""

from __future__ import annotations

import json
import statistics
import time
import tracemalloc
from pathlib import Path
from random import Random
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from jan_serve.dialects.outlines import OPENAI
from jan_serve.fleet.assignment import Outcome
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import NodeState, Role
from jan_serve.proxy.request_facts import RequestFacts, keys_of

_SALT = b"benchmark"


def fleet_of(nodes: int, entries: int, rng: Random) -> Fleet:
    """A fleet whose index has so many entries, or as many as it holds."""
    fleet = Fleet("prefix", Random(2))
    for number in range(nodes):
        url = f"http://10.{number // 62500}.{number // 250 % 250}.{number % 250}"
        fleet.set_state(fleet.add(url, Role.HYBRID, ["m"], None, 0.0), NodeState.HEALTHY)
    everyone = list(fleet)
    for _ in range(entries // 50):
        fleet.index.record([rng.getrandbits(63) for _ in range(50)], rng.choice(everyone))
    return fleet


def measure(nodes: int, n_bytes: int, entries: int, repeats: int) -> dict[str, Any]:
    """50th and 99th percentile in milliseconds, for conversations that go on."""
    rng = Random(1)
    fleet = fleet_of(nodes, entries, rng)
    talks = [rng.randbytes(n_bytes // 2).hex() for _ in range(20)]
    took: list[float] = []
    for number in range(repeats):
        messages = [
            {"role": "system", "content": talks[number % 20]},
            {"role": "user", "content": f"turn {number}"},
        ]
        facts = RequestFacts({"messages": messages}, "m", True, None)
        start = time.thread_time_ns()
        assignment = fleet.assign("m", keys_of(facts, OPENAI, _SALT), now=float(number), streamed=True)
        took.append((time.thread_time_ns() - start) / 1e6)
        assignment.begin_answer(number + 0.1)
        assignment.end(Outcome.DONE, number + 0.5)
    ordered = sorted(took)
    return {
        "nodes": nodes,
        "prompt_bytes": n_bytes,
        "entries": len(fleet.index),
        "p50_ms": statistics.median(ordered),
        "p99_ms": ordered[int(0.99 * (len(ordered) - 1))],
    }


def memory_per_entry(entries: int = 50_000) -> float:
    """Bytes."""
    tracemalloc.start()
    fleet = fleet_of(10, 0, Random(1))
    before = tracemalloc.get_traced_memory()[0]
    rng, everyone = Random(1), list(fleet)
    for _ in range(entries // 50):
        fleet.index.record([rng.getrandbits(63) for _ in range(50)], rng.choice(everyone))
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return (after - before) / len(fleet.index)


def main(
    repeats: Annotated[int, typer.Option(help="decisions of each row")] = 2000,
    out: Annotated[Path, typer.Option(help="all figures as JSON")] = Path("build/bench/proxy-decisions.json"),
) -> None:
    """Measure rows of nodes, prompts and entries."""
    rows = [measure(nodes, 32_768, 92_000, repeats) for nodes in (10, 100, 1_000, 10_000)]
    rows += [measure(1_000, n_bytes, 92_000, repeats // 4) for n_bytes in (1_024, 1 << 20)]
    rows += [measure(1_000, 32_768, entries, repeats) for entries in (10_000, 1_000_000)]
    per_entry = memory_per_entry()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"rows": rows, "bytes_per_entry": per_entry}, indent=1))
    table = Table(title=f"{per_entry:.0f} bytes per entry of the index")
    for heading in ("nodes", "prompt bytes", "entries", "p50 ms", "p99 ms"):
        table.add_column(heading)
    for row in rows:
        table.add_row(
            *(str(row[key]) for key in ("nodes", "prompt_bytes", "entries")),
            f"{row['p50_ms']:.3f}",
            f"{row['p99_ms']:.3f}",
        )
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
