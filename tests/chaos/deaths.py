"""`python -m tests.chaos.deaths [--kills N] [--minutes N] [--json FILE]`: workers die, and answers go on.

Accounts for each request: which were open when their worker died, how many of them ended whole and equal to the
undisturbed answer, and how long their streams paused. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import psutil

from tests.chaos.client import End, Manner, Outcome, ask
from tests.chaos.faults import starved
from tests.chaos.questions import QUESTIONS, Question
from tests.chaos.run import undisturbed
from tests.chaos.world import World, world

_MANNERS: Final = (Manner.READS, Manner.READS, Manner.READS, Manner.DAWDLES, Manner.HALF_CLOSES)
_SIGNALS: Final = (signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS)
_LENGTHS: Final = frozenset({"max_tokens", "max_output_tokens", "num_predict", "max_new_tokens"})
_NO_COOL_DOWN: Final = """
import sys, msgspec
from jan_serve.supervisor.crash_backoff import RestartLimits
from jan_serve.wiring import parts
limits = parts.manager_limits
parts.manager_limits = lambda settings: msgspec.structs.replace(
    limits(settings), restart=RestartLimits(max_crashes=10**9, patience_s=60.0)
)
from jan_serve.__main__ import main
sys.exit(main())
"""
_BUILTIN: Final = "jan-tiny"
_ENDED: Final = re.compile(r"worker (\d+) of (\S+) ended")
_SETTLED_S: Final = 45.0


@dataclass(slots=True)
class Report:
    """deaths: when, and of which process. golden: undisturbed answers by key."""

    golden: dict[str, str] = field(default_factory=dict[str, str])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    deaths: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    kinds: Counter[str] = field(default_factory=Counter[str])
    models: dict[int, str] = field(default_factory=dict[int, str])
    resources: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Memory in MiB and descriptors of the server, before and after."""

    def deaths_of(self, outcome: Outcome) -> int:
        """How often its worker died while it was open."""
        model = outcome.question.model or _BUILTIN
        return sum(
            outcome.start <= at <= outcome.end and self.models.get(pid) == model for at, pid in self.deaths
        )

    @property
    def hit(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if self.deaths_of(outcome)]

    def is_whole(self, outcome: Outcome) -> bool:
        return outcome.kind is End.ANSWER and outcome.text == self.golden[outcome.question.key]

    @property
    def share_whole(self) -> float:
        hit = self.hit
        return sum(map(self.is_whole, hit)) / max(1, len(hit))

    @property
    def changed(self) -> list[Outcome]:
        """Whole answers that are others than the undisturbed ones."""
        return [each for each in self.outcomes if each.kind is End.ANSWER and not self.is_whole(each)]

    def result(self) -> dict[str, Any]:
        """The figures as JSON."""
        hit = self.hit
        pauses = [each.pause for each in hit if each.question.is_stream and self.is_whole(each)]
        cuts = statistics.quantiles(pauses, n=20) if len(pauses) > 1 else [0.0] * 19
        return {
            "deaths": len(self.deaths),
            "kinds": dict(self.kinds),
            "requests": len(self.outcomes),
            "open_at_a_death": len(hit),
            "share_whole": self.share_whole,
            "changed": len(self.changed),
            "pause_s": {"p50": cuts[9], "p95": cuts[18]},
            "server_mib_and_descriptors": self.resources,
        }

    def __str__(self) -> str:
        hit = self.hit
        pauses = sorted(each.pause for each in hit if each.question.is_stream and self.is_whole(each))
        cuts = statistics.quantiles(pauses, n=20) if len(pauses) > 1 else [0.0] * 19
        others = [each for each in self.outcomes if each not in hit]
        ends = Counter(
            f"{'open' if each in hit else 'other'}: {each.kind} {each.status} {each.detail[:100]}"
            for each in self.outcomes
            if not self.is_whole(each)
        )
        return "\n".join(
            [
                f"{len(self.deaths)} deaths ({dict(self.kinds)}), {len(self.outcomes)} requests",
                f"open at a death: {len(hit)}, of which whole and equal: {self.share_whole:.2%}"
                f" ({len([each for each in hit if each.question.is_stream])} streams;"
                f" {len([each for each in hit if self.deaths_of(each) > 1])} over several deaths)",
                f"pause of the streams: median {cuts[9]:.1f} s, p95 {cuts[18]:.1f} s",
                f"others: {len(others)}, whole: {len(list(filter(self.is_whole, others)))}",
                f"changed answers: {len(self.changed)}",
                f"memory in MiB and descriptors of the server: {self.resources}",
                *(f"  {count:5} {end}" for end, count in ends.most_common(20)),
            ]
        )


def lengthened(question: Question, tokens: int) -> Question:
    """The same with a longer answer."""

    def longer(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        fields = cast(dict[str, Any], value)
        return {key: tokens if key in _LENGTHS else longer(each) for key, each in fields.items()}

    return Question(
        question.name, question.path, longer(question.body), question.model, question.told, question.error
    )


async def deaths(
    folder: Path,
    seed: int,
    kills: int,
    clients: int,
    *,
    questions: Sequence[Question],
    cool_down: bool = True,
    hangs: bool = True,
    limit_s: float = math.inf,
    say: Callable[[str], None] = lambda _text: None,
) -> Report:
    """Run it. cool_down: a model that crashed three times in a minute is given up for a minute, as usual.

    hangs: some workers stop for good, which the watchdog notices. limit_s: no more deaths after it.
    """
    report = Report()
    with world(folder, settings="max_models = 4\n") as at:
        if not cool_down:
            at.command = [sys.executable, "-P", "-c", _NO_COOL_DOWN, "serve"]
        at.start()
        await asyncio.wait_for(at.answers(), 60)
        report.golden = await undisturbed(at, questions)
        report.resources.append(_resources(at))
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(clients):
                draws = random.Random(f"{seed}-{number}")
                group.create_task(_client(at, report, draws, questions, over))
            try:
                async with asyncio.timeout(None if limit_s == math.inf else limit_s):
                    await _kill(at, report, random.Random(f"{seed}-deaths"), kills, hangs=hangs, say=say)
            except TimeoutError:
                say(f"{limit_s:.0f} s are over")
            finally:
                over.set()
        report.resources.append(_resources(at))
        log = at.log.read_text(encoding="utf-8", errors="replace")
        report.models = {int(pid): name for pid, name in _ENDED.findall(log)}
    return report


async def _client(
    at: World, report: Report, draws: random.Random, questions: Sequence[Question], over: asyncio.Event
) -> None:
    while not over.is_set():
        got = await ask(at.port, draws.choice(questions), draws.choice(_MANNERS), draws, [])
        report.outcomes.append(got)
        if got.kind is not End.ANSWER:
            await asyncio.sleep(0.5)


async def _kill(
    at: World, report: Report, draws: random.Random, kills: int, *, hangs: bool, say: Callable[[str], None]
) -> None:
    while len(report.deaths) < kills:
        await asyncio.sleep(draws.uniform(0.5, 4.0))
        workers = sorted(at.workers(), key=lambda each: each.pid)
        if not workers:
            continue
        worker = draws.choice(workers)
        kind = draws.choices(("a signal", "no memory", "hangs"), (20, 4, int(hangs)))[0]
        before = time.monotonic()
        try:
            match kind:
                case "a signal":
                    worker.send_signal(draws.choice(_SIGNALS))
                case "hangs":
                    worker.suspend()
                case _:
                    async with starved(lambda _, worker=worker: [worker])(at, draws):
                        await asyncio.sleep(1.0)
        except psutil.NoSuchProcess:
            continue
        try:
            await asyncio.to_thread(worker.wait, 0.2 if kind == "no memory" else _SETTLED_S)
        except psutil.TimeoutExpired:
            worker.resume()  # it was idle, which nobody watches, or had the memory that it needed
            continue
        report.deaths.append((before, worker.pid))
        report.kinds[kind] += 1
        say(f"{len(report.deaths)}: {kind}")


def _resources(at: World) -> tuple[int, int]:
    return at.process.memory_info().rss >> 20, at.process.num_fds()


def main() -> int:
    command = argparse.ArgumentParser(prog="python -m tests.chaos.deaths")
    command.add_argument("--kills", type=int, default=300)
    command.add_argument("--seed", type=int, default=random.randrange(10**6))
    command.add_argument("--clients", type=int, default=12)
    command.add_argument("--tokens", type=int, default=400)
    command.add_argument("--cool-down", action="store_true")
    command.add_argument("--minutes", type=float, default=math.inf, help="no more deaths after them")
    command.add_argument("--json", type=Path, help="a file for the result")
    options = command.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="deaths-") as folder:
        report = asyncio.run(
            deaths(
                Path(folder) / "run",
                options.seed,
                options.kills,
                options.clients,
                questions=[lengthened(each, options.tokens) for each in QUESTIONS],
                cool_down=options.cool_down,
                limit_s=60 * options.minutes,
                say=lambda text: print(text, flush=True),
            )
        )
    print(report)
    if options.json is not None:
        options.json.write_text(json.dumps({"seed": options.seed} | report.result()), encoding="utf-8")
    return int(report.share_whole < 0.99 or bool(report.changed))


if __name__ == "__main__":
    sys.exit(main())
