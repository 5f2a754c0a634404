"""Medians, ratios, a table and JSON."""

from __future__ import annotations

import json
import platform
import statistics
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figures
from benchmarks.rows import ROWS

Samples = dict[str, dict[str, list[Figures]]]  # server name -> row name -> one entry per round


def medians(samples: Samples) -> dict[str, dict[str, Figures]]:
    """The median of every figure over the rounds that have it."""
    return {
        server: {row: _medians(rounds) for row, rounds in rows.items() if rounds}
        for server, rows in samples.items()
    }


def _medians(rounds: list[Figures]) -> Figures:
    names = dict.fromkeys(name for figures in rounds for name in figures)
    return {name: statistics.median(each[name] for each in rounds if name in each) for name in names}


def print_table(samples: Samples, mine: str, others: list[str]) -> None:
    """One line per figure: our median, each other's, and ours over it."""
    middle = medians(samples)
    table = Table(title=f"medians; ratios are {mine} over the other" if others else "medians")
    headings = [heading for other in others for heading in (other, "ratio")]
    for heading in ("row", "figure", mine, *headings, "why"):
        table.add_column(heading)
    for row in ROWS:
        for key, value in middle.get(mine, {}).get(row.name, {}).items():
            cells = [row.name, key, f"{value:.3g}"]
            for name in others:
                other = middle[name].get(row.name, {}).get(key)
                cells += ["-" if other is None else f"{other:.3g}", f"{value / other:.2f}" if other else "-"]
            table.add_row(*cells, row.why if key == row.headline else "")
    Console().print(table)


def write_json(path: Path, samples: Samples, settings: dict[str, Any]) -> None:
    """All samples with their medians and their machine."""
    machine = {
        "system": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
    }
    document = {"machine": machine, "settings": settings, "medians": medians(samples), "samples": samples}
    path.write_text(json.dumps(document, indent=2))
