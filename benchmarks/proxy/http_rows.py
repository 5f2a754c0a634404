"""Requests through a real proxy over loopback, beside others: `python -m benchmarks.proxy.http_rows [--peer NAME=CMD]`.

One process has the nodes, one the proxy, this one the clients. What a proxy adds is the difference to the same requests
sent to the nodes themselves. `{port}` and `{nodes}` (URLs, with blanks between) in a command are filled in; `--adds`
registers nodes with LMDeploy's `/nodes/add`.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import aiohttp
import psutil
import typer
from rich.console import Console
from rich.table import Table

_PROMPT: Final = [{"role": "system", "content": "You are helpful. " * 100}, {"role": "user", "content": ""}]
OURS: Final = f"{sys.executable} -m jan_serve proxy --forget --log-level warning --port {{port}}"


@dataclass(frozen=True, slots=True)
class Row:
    """Times in milliseconds. cpu_ms: of the proxy for each request, which other work on the machine changes least."""

    connections: int
    stream: bool
    per_s: float
    p50: float
    p99: float
    first_p50: float
    failed: int
    cpu_ms: float = 0.0


async def measure(
    urls: list[str], connections: int, *, stream: bool, seconds: float, proxy: psutil.Process | None = None
) -> Row:
    """A row of as many clients as connections, each with one request at a time, spread over the URLs."""
    took: list[float] = []
    first: list[float] = []
    failed = 0
    before = _cpu_s(proxy)
    began = time.perf_counter()
    until = began + seconds
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def client(number: int) -> None:
            nonlocal failed
            turn = number
            while (start := time.perf_counter()) < until:
                turn += 1
                messages = [_PROMPT[0], {"role": "user", "content": f"Question {number} {turn}"}]
                body: dict[str, Any] = {"model": "m", "messages": messages}
                if stream:
                    body["stream"] = True
                url = f"{urls[turn % len(urls)]}/v1/chat/completions"
                try:
                    async with session.post(url, json=body) as answer:
                        await answer.content.readany()
                        first.append(time.perf_counter() - start)
                        content = await answer.read()
                        if answer.status != 200 or b"error_code" in content:
                            failed += 1
                except aiohttp.ClientError:
                    failed += 1
                took.append(time.perf_counter() - start)

        await asyncio.gather(*(client(number) for number in range(connections)))
    elapsed_s = time.perf_counter() - began  # the last requests end later than the time is up
    ordered = sorted(took)
    return Row(
        connections,
        stream,
        len(took) / elapsed_s,
        1000 * statistics.median(ordered),
        1000 * ordered[int(0.99 * (len(ordered) - 1))],
        1000 * statistics.median(first or [0.0]),
        failed,
        1000 * (_cpu_s(proxy) - before) / max(1, len(took)),
    )


def _cpu_s(process: psutil.Process | None) -> float:
    """CPU seconds of a process and its children."""
    family = [] if process is None else [process, *process.children(recursive=True)]
    return sum(sum(each.cpu_times()[:2]) for each in family)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


async def _ready(url: str, nodes: list[str], adds: bool) -> None:
    async with aiohttp.ClientSession() as session:
        until = time.monotonic() + 60
        while True:
            try:
                async with session.get(f"{url}/v1/models") as answer:
                    if answer.status < 500:
                        break
            except aiohttp.ClientError:
                if time.monotonic() > until:
                    raise
            await asyncio.sleep(0.2)
        for node in nodes if adds else ():
            body = {"url": node, "status": {"models": ["m"], "role": 1}}
            async with session.post(f"{url}/nodes/add", json=body) as answer:
                assert answer.status == 200, await answer.text()


async def _rows(
    urls: list[str], connections: list[int], seconds: float, proxy: psutil.Process | None = None
) -> list[Row]:
    await measure(urls, 8, stream=False, seconds=min(1.0, seconds))
    return [
        await measure(urls, each, stream=stream, seconds=seconds, proxy=proxy)
        for stream in (False, True)
        for each in connections
    ]


def main(
    nodes: Annotated[int, typer.Option(help="number of nodes")] = 100,
    seconds: Annotated[float, typer.Option(help="of each row")] = 5.0,
    connection: Annotated[list[int] | None, typer.Option(help="numbers of clients")] = None,
    peer: Annotated[list[str] | None, typer.Option(help="NAME=COMMAND of another proxy")] = None,
    adds: Annotated[list[str] | None, typer.Option(help="name of a peer with LMDeploy's /nodes/add")] = None,
    requests: Annotated[int, typer.Option(help="memory of ours after so many further requests")] = 0,
    rounds: Annotated[int, typer.Option(help="in each of which all proxies take their turn")] = 1,
    wait_ms: Annotated[float, typer.Option(help="until a node answers")] = 20.0,
    out: Annotated[Path, typer.Option(help="all figures as JSON")] = Path("build/bench/proxy-http.json"),
) -> None:
    """Measure, and print what each proxy does."""
    connections = connection or [1, 32, 256]
    commands = {"jan-serve": OURS} | dict(each.split("=", 1) for each in peer or ())
    registering = {"jan-serve", *(adds or ())}
    fake = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.proxy.fake_node", str(nodes), str(wait_ms)],
        stdout=subprocess.PIPE,
        text=True,
    )
    figures: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in ("direct", *commands)}
    try:
        assert fake.stdout is not None
        urls = [f"http://127.0.0.1:{port}" for port in json.loads(fake.stdout.readline())]
        for _ in range(rounds):
            direct = asyncio.run(_rows(urls, connections, seconds))
            figures["direct"].append([_plain(row) for row in direct])
            for name, command in commands.items():
                further = requests if name == "jan-serve" else 0
                rows = _proxied(command, urls, connections, seconds, name in registering, further)
                figures[name].append(rows)
    finally:
        fake.terminate()
        fake.wait()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(figures, indent=1))
    _print({name: _medians(each) for name, each in figures.items()}, rounds)


def _medians(rounds: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Each figure's median over the rounds."""
    return [
        {name: statistics.median(row[name] for row in same) for name in Row.__dataclass_fields__}
        for same in zip(*rounds, strict=True)
    ]


def _proxied(
    command: str, nodes: list[str], connections: list[int], seconds: float, adds: bool, requests: int
) -> list[dict[str, Any]]:
    port = _free_port()
    words = shlex.split(command.replace("{port}", str(port)).replace("{nodes}", " ".join(nodes)))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        asyncio.run(_ready(url, nodes, adds))
        rows = [
            _plain(row)
            for row in asyncio.run(_rows([url], connections, seconds, psutil.Process(process.pid)))
        ]
        memory = [psutil.Process(process.pid).memory_info().rss]
        done = 0
        while done < requests:
            done += round(asyncio.run(measure([url], 256, stream=False, seconds=10.0)).per_s * 10)
            memory.append(psutil.Process(process.pid).memory_info().rss)
        return [
            {**rows[0], "memory_mb": [round(each / 2**20, 1) for each in memory], "more": done},
            *rows[1:],
        ]
    finally:
        process.terminate()
        process.wait()


def _plain(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__dataclass_fields__}


def _print(figures: dict[str, list[dict[str, Any]]], rounds: int) -> None:
    table = Table(title=f"medians of {rounds} rounds; added: over the same requests without a proxy, ms")
    for heading in (
        "proxy",
        "answer",
        "clients",
        "requests/s",
        "added p50",
        "added p99",
        "added first p50",
        "CPU ms",
        "failed",
    ):
        table.add_column(heading)
    for name, rows in figures.items():
        for row, direct in zip(rows, figures["direct"], strict=True):
            added = [f"{row[key] - direct[key]:.2f}" for key in ("p50", "p99", "first_p50")]
            kind = "stream" if row["stream"] else "whole"
            cells = (f"{row['cpu_ms']:.2f}", str(row["failed"]))
            table.add_row(name, kind, str(row["connections"]), f"{row['per_s']:.0f}", *added, *cells)
    Console(width=130).print(table)


if __name__ == "__main__":
    typer.run(main)
