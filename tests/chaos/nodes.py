"""`python -m tests.chaos.nodes [--minutes N] [--every S] [--json FILE]`: nodes of a proxy die in turn under clients.

Two servers with the same model join a proxy. Every so many seconds one of them is killed, or asked to stop, and starts
again. Accounts for each request: which were open at a death, how many of them ended whole and equal to the undisturbed
answer, how long streams paused, and what the proxy holds before and after. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psutil

from tests.chaos.client import End, Manner, Outcome, ask
from tests.chaos.deaths import lengthened
from tests.chaos.questions import QUESTIONS, WRITER, Question
from tests.chaos.world import write_exact
from tests.support.ports import held_port
from tests.support.processes import wait_until
from tests.support.servers.proxied import nodes_of, proxying
from tests.support.servers.served import Served, serving

_BUILTIN: Final = Path(__file__).resolve().parents[2] / "models" / "builtin" / "jan-tiny.gguf"
_MANNERS: Final = (Manner.READS, Manner.READS, Manner.READS, Manner.DAWDLES, Manner.HALF_CLOSES)
_SIGNALS: Final = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)
_FLAGS: Final = ("--parallel", "6", "--n-ctx", "4096", "--threads", "1", "--flash-attn", "off")
_EXACT: Final = ("--type-k", "f32", "--type-v", "f32")
_JOINED_S: Final = 60.0


@dataclass(slots=True)
class Report:
    """deaths: when. resources: memory in MiB and descriptors of the proxy, before and after."""

    golden: dict[str, str] = field(default_factory=dict[str, str])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    deaths: list[float] = field(default_factory=list[float])
    resources: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def is_whole(self, outcome: Outcome) -> bool:
        return outcome.kind is End.ANSWER and outcome.text == self.golden[outcome.question.key]

    def result(self) -> dict[str, Any]:
        hit = [each for each in self.outcomes if any(each.start <= at <= each.end for at in self.deaths)]
        whole = [each for each in hit if self.is_whole(each)]
        pauses = [each.pause for each in whole if each.question.is_stream]
        cuts = statistics.quantiles(pauses, n=20) if len(pauses) > 1 else [0.0] * 19
        wrong = Counter(
            f"{each.question.name}: {each.kind} {each.status} {each.detail[:120]}"
            for each in self.outcomes
            if each.kind is not End.ANSWER
        )
        return {
            "deaths": len(self.deaths),
            "requests": len(self.outcomes),
            "open_at_a_death": len(hit),
            "share_whole": len(whole) / max(1, len(hit)),
            "changed": sum(each.kind is End.ANSWER and not self.is_whole(each) for each in self.outcomes),
            "pause_s": {"p50": cuts[9], "p95": cuts[18]},
            "proxy_mib_and_descriptors": self.resources,
            "not_whole": dict(wrong.most_common(20)),
        }


async def run(
    folder: Path, seed: int, minutes: float, every_s: float, clients: int, questions: Sequence[Question]
) -> Report:
    report = Report()
    shelf = folder / "models"
    shelf.mkdir(parents=True)
    write_exact(_BUILTIN, shelf / f"{WRITER}.gguf")
    with held_port() as first, held_port() as second, proxying(folder) as proxy, ExitStack() as stack:
        ports = [first, second]  # the servers come back under the addresses that they had
        url = proxy.url()
        port = urlsplit(url).port
        assert port is not None

        def start(number: int) -> Served:
            place = folder / str(number)
            place.mkdir(exist_ok=True)
            config = (
                f'data_dir = "data"\ndrain_timeout_s = 1\nmodels_dir = {str(shelf)!r}\nmodel = "{WRITER}"\n'
            )
            (place / "config.toml").write_text(config, encoding="utf-8")
            flags = ("--port", str(ports[number]), "--proxy-url", url, *_FLAGS, *_EXACT)
            return stack.enter_context(serving(place, *flags))

        servers = [start(0), start(1)]
        await asyncio.to_thread(wait_until, lambda: _healthy(url) == len(servers), _JOINED_S)
        for question in questions:
            got = await ask(port, question, Manner.READS, random.Random(0), [])
            assert got.kind is End.ANSWER, got
            report.golden[question.key] = got.text
        report.resources.append(_resources(proxy))
        until = time.monotonic() + 60 * minutes
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                draws = random.Random(f"{seed}-{number}")
                group.create_task(_client(port, report, draws, questions, until))
            draws = random.Random(f"{seed}-deaths")
            turn = 0
            while time.monotonic() + every_s < until:
                await asyncio.sleep(every_s)
                await asyncio.to_thread(wait_until, lambda: _healthy(url) == len(servers), _JOINED_S)
                report.deaths.append(time.monotonic())
                servers[turn].process.send_signal(draws.choice(_SIGNALS))
                await asyncio.to_thread(servers[turn].wait)
                servers[turn] = start(turn)
                turn = 1 - turn
        report.resources.append(_resources(proxy))
    return report


async def _client(
    port: int, report: Report, draws: random.Random, questions: Sequence[Question], until: float
) -> None:
    while time.monotonic() < until:
        report.outcomes.append(await ask(port, draws.choice(questions), draws.choice(_MANNERS), draws, []))


def _healthy(url: str) -> int:
    return sum(node["state"] == "healthy" for node in nodes_of(url))


def _resources(proxy: Served) -> tuple[int, int]:
    process = psutil.Process(proxy.process.pid)
    return process.memory_info().rss >> 20, process.num_fds()


def main() -> int:
    command = argparse.ArgumentParser(prog="python -m tests.chaos.nodes")
    command.add_argument("--minutes", type=float, default=10.0)
    command.add_argument("--every", type=float, default=20.0, metavar="SECONDS")
    command.add_argument("--seed", type=int, default=random.randrange(10**6))
    command.add_argument("--clients", type=int, default=12)
    command.add_argument("--tokens", type=int, default=400)
    command.add_argument("--json", type=Path)
    options = command.parse_args()
    asked = [lengthened(each, options.tokens) for each in QUESTIONS if each.model == WRITER]
    with tempfile.TemporaryDirectory(prefix="nodes-") as folder:
        report = asyncio.run(
            run(Path(folder), options.seed, options.minutes, options.every, options.clients, asked)
        )
    result = {"seed": options.seed, **report.result()}
    print(json.dumps(result, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(result), encoding="utf-8")
    return int(result["share_whole"] < 0.99 or bool(result["changed"]))


if __name__ == "__main__":
    sys.exit(main())
