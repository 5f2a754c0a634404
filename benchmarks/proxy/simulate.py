"""Tables of the simulation: `python -m benchmarks.proxy.simulate [--quick] [--only NAME] [--plot FILE]`."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.proxy.bars import write_bars
from benchmarks.proxy.simulation import CONTENDERS, Load, Simulation
from benchmarks.proxy.world import DESKTOP, LAPTOP, RACK, Kind

OURS: Final = "prefix (ours)"
USUAL: Final = "least in flight"
_HOME: Final = [LAPTOP] * 3 + [DESKTOP] * 3 + [RACK] * 2


Disturb = Callable[[Simulation, float], None]


@dataclass(frozen=True, slots=True)
class Scenario:
    """seconds, warm_s: simulated; results count after the latter. disturb: changes the nodes from a moment on."""

    name: str
    kinds: list[Kind]
    load: Load
    seconds: float = 400.0
    warm_s: float = 150.0
    seeds: int = 5
    contenders: tuple[str, ...] = tuple(CONTENDERS)
    disturb: Disturb | None = None


def _kill(share: float) -> Disturb:
    def disturb(world: Simulation, at_s: float) -> None:
        doomed = world.rng.sample(list(world.nodes.values()), max(1, int(share * len(world.nodes))))
        for node in doomed:
            world.later(at_s, node.die)

    return disturb


def _hole(world: Simulation, at_s: float) -> None:
    """Takes requests and never answers, while its health looks good."""
    node = next(iter(world.nodes.values()))
    world.later(at_s, lambda: setattr(node, "is_hole", True))


def _slow(world: Simulation, at_s: float) -> None:
    node = next(iter(world.nodes.values()))
    world.later(at_s, lambda: setattr(node, "slowness", 10.0))


def _flap(world: Simulation, at_s: float) -> None:
    node = next(iter(world.nodes.values()))

    def turn() -> None:
        if node.is_up:
            node.die()
        else:
            node.is_up = True
        world.later(7.0, turn)

    world.later(at_s, turn)


def _rolling(world: Simulation, at_s: float) -> None:
    """Every node in turn refuses new requests, finishes the others, and comes back with an empty cache."""

    def restart(number: int) -> None:
        nodes = list(world.nodes.values())
        if number >= len(nodes):
            return
        node = nodes[number]
        node.refuses = True

        def back() -> None:
            if node.running:
                world.later(0.5, back)
                return
            node.cache.clear()
            node.refuses = False
            restart(number + 1)

        world.later(2.0, back)

    world.later(at_s, lambda: restart(0))


_PAIR: Final = (OURS, USUAL)
_HUNDRED: Final = Load(clients=600)
SCENARIOS: Final = (
    Scenario("8 mixed machines", _HOME, Load(clients=48)),
    Scenario("8 mixed machines, open loop", _HOME, Load(arrivals=0.6)),
    Scenario("100 desktops", [DESKTOP] * 100, _HUNDRED, 300.0, 120.0),
    Scenario("100 desktops, open loop", [DESKTOP] * 100, Load(arrivals=8.0), 300.0, 120.0),
    Scenario("1,000 desktops", [DESKTOP] * 1000, Load(clients=4000), 130.0, 70.0, contenders=_PAIR),
    Scenario("10,000 desktops", [DESKTOP] * 10_000, Load(clients=10_000), 100.0, 60.0, 1, _PAIR),
    Scenario("one hot prompt", [DESKTOP] * 30, Load(clients=300, systems=1, turns=2), contenders=_PAIR),
    Scenario("agents, 50 turns", [DESKTOP] * 30, Load(0, 0, 50, 0.5, 60, 600, 60), contenders=_PAIR),
    Scenario("unrelated prompts", [DESKTOP] * 50, Load(0, 0, 1, 8.0, 0, 2000), contenders=_PAIR),
    Scenario("laptops, small caches", [LAPTOP] * 30, Load(clients=60), contenders=_PAIR),
    Scenario("1 of 100 dies", [DESKTOP] * 100, _HUNDRED, 300.0, 120.0, 3, _PAIR, _kill(0.01)),
    Scenario("10 of 100 die", [DESKTOP] * 100, _HUNDRED, 300.0, 120.0, 3, _PAIR, _kill(0.1)),
    Scenario("50 of 100 die", [DESKTOP] * 100, _HUNDRED, 300.0, 120.0, 3, _PAIR, _kill(0.5)),
    Scenario("a black hole", [DESKTOP] * 20, Load(clients=80), 300.0, 120.0, 3, _PAIR, _hole),
    Scenario("a node 10 times slower", [DESKTOP] * 20, Load(clients=80), 300.0, 120.0, 3, _PAIR, _slow),
    Scenario("a node comes and goes", [DESKTOP] * 20, Load(clients=80), 300.0, 120.0, 3, _PAIR, _flap),
    Scenario("rolling restart of all", [DESKTOP] * 20, Load(clients=80), 400.0, 150.0, 3, _PAIR, _rolling),
)


def _loaded(scenario: Scenario) -> Scenario:
    """Clients where the table leaves them to be filled in."""
    clients = {"agents, 50 turns": 100, "unrelated prompts": 250}.get(scenario.name)
    return scenario if clients is None else replace(scenario, load=replace(scenario.load, clients=clients))


def run_one(number: int, contender: str, seed: int, quick: bool) -> dict[str, float]:
    """The figures of one run."""
    scenario = _loaded(SCENARIOS[number])
    kinds, load, shorter = scenario.kinds, scenario.load, 1.0
    if quick:
        kinds, shorter = kinds[:: max(1, len(kinds) // 20)], 0.5
        share = len(kinds) / len(scenario.kinds)
        load = replace(load, clients=int(load.clients * share), arrivals=load.arrivals * share)
    started = time.perf_counter()
    world = Simulation(kinds, load, CONTENDERS[contender], seed)
    if scenario.disturb is not None:
        scenario.disturb(world, (scenario.warm_s + 10) * shorter)
    figures = world.run(scenario.seconds * shorter, scenario.warm_s * shorter).figures()
    return {**figures, "took_s": round(time.perf_counter() - started, 2)}


def main(
    quick: Annotated[bool, typer.Option(help="at most 20 nodes, half the time, one seed")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="scenarios whose name has this; may be repeated")
    ] = None,
    jobs: Annotated[int, typer.Option(help="processes")] = 1,
    out: Annotated[Path, typer.Option(help="all figures as JSON")] = Path(
        "build/bench/proxy-simulation.json"
    ),
    plot: Annotated[Path | None, typer.Option(help="draw the 95th percentiles as SVG")] = None,
) -> None:
    """Simulate, and print medians over the seeds."""
    wanted = [
        (number, contender, seed)
        for number, scenario in enumerate(SCENARIOS)
        if not only or any(part in scenario.name for part in only)
        for contender in scenario.contenders
        for seed in range(1, 2 if quick else scenario.seeds + 1)
    ]
    figures: dict[str, dict[str, list[dict[str, float]]]] = {}
    out.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(jobs) as pool:
        running = [(each, pool.submit(run_one, *each, quick)) for each in wanted]
        for (number, contender, seed), future in running:
            scenario = SCENARIOS[number]
            found = {**future.result(), "seed": seed}
            figures.setdefault(scenario.name, {}).setdefault(contender, []).append(found)
            out.write_text(json.dumps(figures, indent=1))
    print_table(figures)
    if plot is not None:
        write_bars(
            plot,
            {
                name: {who: median(rows)["p95_s"] for who, rows in each.items()}
                for name, each in figures.items()
            },
        )


def median(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def print_table(figures: dict[str, dict[str, list[dict[str, Any]]]]) -> None:
    table = Table(title="medians over the seeds; in brackets the least and the largest")
    for heading in (
        "scenario",
        "choice",
        "hit rate (at most)",
        "p50 s",
        "p95 s",
        "p99 s",
        "failed",
        "cut",
        "retried",
        "busiest",
    ):
        table.add_column(heading)
    for name, each in figures.items():
        for who, rows in each.items():
            middle = median(rows)
            spread = f" ({min(row['p95_s'] for row in rows):.2f} to {max(row['p95_s'] for row in rows):.2f})"
            hits = f"{middle['hit_rate']:.2f} ({middle['hit_bound']:.2f})"
            table.add_row(
                name, who, hits, f"{middle['p50_s']:.2f}", f"{middle['p95_s']:.2f}{spread}",
                f"{middle['p99_s']:.2f}", *(f"{middle[key]:.0f}" for key in ("failed", "cut", "retried")),
                f"{middle['busiest']:.1f}",
            )  # fmt: skip
    Console(width=150).print(table)


if __name__ == "__main__":
    typer.run(main)
