"""Runs the rows on our server, alternating with a peer if one is given."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import aiohttp
import typer
from rich.progress import Progress

from benchmarks import burst_rows, raw_loop, report
from benchmarks.figures import Figures, Skipped
from benchmarks.lanes import write_lanes
from benchmarks.plot import write_curves, write_svg
from benchmarks.rows import ROWS, Row
from benchmarks.servers import Command, Running, ours, peer_of, started

_ROOT = Path(__file__).resolve().parent.parent
BUILTIN = _ROOT / "models" / "builtin" / "jan-tiny.gguf"
RESULTS = _ROOT / "build" / "bench"


def _list_rows(wanted: bool) -> None:
    if wanted:
        for row in ROWS:
            print(f"{row.name}: {row.why} ({row.headline})")
        raise typer.Exit


def main(
    model: Annotated[Path, typer.Option(help="GGUF to serve")] = BUILTIN,
    rounds: Annotated[int, typer.Option(help="rounds of each server, in turn")] = 3,
    peer: Annotated[str, typer.Option(help="URL of a running server (also PEER)")] = "",
    peer_cmd: Annotated[
        list[str] | None,
        typer.Option(help="[NAME=]command with {model} and {port} (also PEER_CMD); may be repeated"),
    ] = None,
    flags: Annotated[str, typer.Option(help="flags for jan-serve")] = "",
    row: Annotated[list[str] | None, typer.Option(help="only this row; may be repeated")] = None,
    out: Annotated[Path, typer.Option(help="write all samples as JSON")] = RESULTS / "latest.json",
    plot: Annotated[Path, typer.Option(help="draw the medians as SVG")] = RESULTS / "latest.svg",
    curves: Annotated[Path | None, typer.Option(help="draw the curves' rows as SVG")] = None,
    lanes: Annotated[
        Path | None, typer.Option(help="draw the clients of a burst of eight over time, as SVG")
    ] = None,
    list_rows: Annotated[
        bool, typer.Option("--list", is_eager=True, callback=_list_rows, help="name the rows and end")
    ] = False,
    raw_threads: Annotated[
        int, typer.Option(help="measure a bare llama.cpp loop of so many threads beside the curves' rows")
    ] = 0,
) -> None:
    """Measure jan-serve, alternating with a peer; prints medians and ratios."""
    peer, peer_cmds = (
        peer or os.environ.get("PEER", ""),
        peer_cmd or os.environ.get("PEER_CMD", "").splitlines(),
    )
    commands = [ours(flags), *([Command("peer", url=peer)] if peer else ()), *map(peer_of, peer_cmds)]
    rows = [r for r in ROWS if not row or r.name in row]
    if not rows:
        sys.exit(f"no such row; there are {', '.join(r.name for r in ROWS)}")
    samples: report.Samples = {command.name: {r.name: [] for r in rows} for command in commands}
    settings = {"model": model.name, "rounds": rounds, "flags": flags, "peer_cmds": peer_cmds}
    missing: dict[str, str] = {}
    drawn: dict[str, list[burst_rows.Lane]] = {}
    for path in (out, plot):
        path.parent.mkdir(parents=True, exist_ok=True)
    with Progress() as progress:
        task = progress.add_task("measuring", total=rounds * len(commands) * len(rows))
        for number in range(rounds):
            for command in commands:
                with started(command, model) as server:
                    for r in rows:
                        progress.update(task, description=f"{command.name}: {r.name}")
                        try:
                            samples[command.name][r.name].append(_run(r, server, number + 1))
                        except (Skipped, RuntimeError, OSError, aiohttp.ClientError) as error:
                            missing[f"{command.name}, {r.name}"] = f"{type(error).__name__}: {error}"
                        progress.advance(task)
                    if lanes is not None and not number:
                        drawn[command.name] = burst_rows.lanes_of_burst(server, 1000, 8, 300)
            if raw_threads:
                for name, figures in raw_loop.measure(model, raw_threads).items():
                    samples.setdefault(raw_loop.NAME, {}).setdefault(name, []).append(figures)
            report.write_json(out, samples, settings)
    write_svg(plot, report.medians(samples))
    if curves is not None:
        write_curves(curves, report.medians(samples))
    if lanes is not None:
        write_lanes(lanes, drawn)
    others = [name for name in samples if name != commands[0].name]
    report.print_table(samples, commands[0].name, others)
    for name, reason in missing.items():
        print(f"{name}: {reason}")
    print(f"all samples: {out}; drawn: {plot}")
    if any(not reason.startswith("Skipped") for reason in missing.values()):
        sys.exit(1)


def _run(row: Row, server: Running, seed: int) -> Figures:
    n_ctx = server.n_ctx() if row.needs_ctx else None
    if n_ctx is not None and n_ctx < row.needs_ctx:
        raise Skipped(f"the server has a context of {n_ctx} tokens, and this takes {row.needs_ctx}")
    return row.run(server, seed)


if __name__ == "__main__":
    typer.run(main)
