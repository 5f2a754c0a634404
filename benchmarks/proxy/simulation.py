"""Users, nodes and a clock around the real `fleet` code: choice, breaker, retry budget, prefix index."""

from __future__ import annotations

import heapq
import itertools
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from benchmarks.proxy.world import Cache, Job, Kind, Prompt, Prompts, SimNode
from jan_serve.errors import JanServeError
from jan_serve.fleet.assignment import Assignment, Outcome
from jan_serve.fleet.attempts import Attempts, Ending, RetryBudget
from jan_serve.fleet.fleet import Fleet
from jan_serve.fleet.node import Node, NodeState, Role
from jan_serve.fleet.strategies import Candidates, Strategy, StrategyName, strategy

PROBE_S: Final = 5.0
FIRST_BYTE_S: Final = 120.0
NOTICE_S: Final = 0.001
"""Until the proxy sees that nobody listens, or that a connection ended."""


@dataclass(slots=True)
class Result:
    """Times in seconds; `failed`: before an answer had begun. known: tokens of prompts that any node had computed
    before. busiest: node over the mean."""

    first_s: list[float] = field(default_factory=list[float])
    prompt: int = 0
    cached: int = 0
    known: int = 0
    done: int = 0
    failed: int = 0
    cut: int = 0
    retried: int = 0
    busiest: float = 0.0

    def figures(self) -> dict[str, float]:
        first = sorted(self.first_s) or [float("nan")]
        return {
            "hit_rate": self.cached / max(1, self.prompt),
            "hit_bound": self.known / max(1, self.prompt),
            "p50_s": statistics.median(first),
            "p95_s": first[int(0.95 * (len(first) - 1))],
            "p99_s": first[int(0.99 * (len(first) - 1))],
            "done": self.done,
            "failed": self.failed,
            "cut": self.cut,
            "retried": self.retried,
            "busiest": self.busiest,
        }


@dataclass(frozen=True, slots=True)
class Load:
    """clients: in a closed loop; or arrivals: conversations a second, whatever the nodes do. think_s: mean pause
    between turns. hot: every conversation begins with the same prompt."""

    clients: int = 0
    arrivals: float = 0.0
    turns: int = 6
    think_s: float = 8.0
    systems: int = 60
    turn: int = 400
    answer: int = 150
    retries: bool = True


Baseline = Callable[[Fleet, Random], Strategy]


class Simulation:
    """One run. kinds: of the nodes. chosen: our strategy by name, or another one made for the fleet."""

    def __init__(
        self,
        kinds: list[Kind],
        load: Load,
        chosen: StrategyName | Baseline,
        seed: int,
        *,
        probe_s: float = PROBE_S,
    ) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.result = Result()
        self._load = load
        self._prompts = Prompts(Random(seed + 1), load.systems, load.turn, load.answer)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._budget = RetryBudget()
        self._ever = Cache(1 << 60)
        self.fleet = Fleet("prefix", Random(seed + 2))
        if callable(chosen):
            self.fleet.use(chosen(self.fleet, Random(seed + 3)))
        else:
            self.fleet.use(strategy(chosen, self.fleet.index))
        self.nodes: dict[Node, SimNode] = {}
        for number, kind in enumerate(kinds):
            node = self.fleet.add(
                f"http://10.0.{number // 250}.{number % 250}:{1000 + number}", Role.HYBRID, ["m"], None, 0
            )
            self.fleet.set_state(node, NodeState.HEALTHY)
            self.nodes[node] = SimNode(kind, self.later)
        self.probe_s = probe_s
        self._sent = dict.fromkeys(self.nodes, 0)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), call))

    def run(self, seconds: float, warm_s: float = 0.0) -> Result:
        """Results count from `warm_s` on, when caches and estimates have settled."""
        load = self._load
        for _ in range(load.clients):
            self.later(self.rng.uniform(0, load.think_s), self._converse)
        if load.arrivals:
            self.later(self.rng.expovariate(load.arrivals), self._arrive)
        self.later(self.probe_s, self._probe)
        if warm_s:
            self.later(warm_s, self._reset)
        while self._events and self._events[0][0] < seconds:
            self.now, _, call = heapq.heappop(self._events)
            call()
        sent = list(self._sent.values())
        self.result.busiest = max(sent) / max(1e-9, statistics.mean(sent))
        return self.result

    def _reset(self) -> None:
        self.result = Result()
        self._sent = dict.fromkeys(self.nodes, 0)

    def _arrive(self) -> None:
        self._converse()
        self.later(self.rng.expovariate(self._load.arrivals), self._arrive)

    def _converse(self) -> None:
        self._turn(self._prompts.begin(), 1)

    def _next(self, prompt: Prompt, turn: int) -> None:
        if turn < self._load.turns:
            pause = self.rng.expovariate(1 / self._load.think_s) if self._load.think_s else 0.0
            self.later(pause, lambda: self._turn(self._prompts.extend(prompt), turn + 1))
        elif self._load.clients:
            self._converse()

    def _turn(self, prompt: Prompt, turn: int) -> None:
        _Request(self, prompt, turn)

    def _probe(self) -> None:
        for node in self.nodes:
            self._check(node)
        self.later(self.probe_s, self._probe)

    def _check(self, node: Node) -> None:
        """What `Probes` does, with its result at once."""
        real = self.nodes[node]
        if not real.is_up:
            node.probe_failures += 1
            if node.probe_failures >= 2:
                self.fleet.set_state(node, NodeState.LOST)
        elif real.refuses:
            self.fleet.set_state(node, NodeState.DRAINING)
        else:
            node.probe_failures = 0
            node.note_open(None, 0, self.now)
            if node.state is not NodeState.HEALTHY:
                self.fleet.set_state(node, NodeState.HEALTHY)
                node.breaker.reset()

    def suspect(self, node: Node) -> None:
        """What `Probes.suspect` does."""
        if node.state is NodeState.HEALTHY:
            node.probe_failures = 1
        self.later(NOTICE_S, lambda: self._check(node))


class _Request:
    """What `Forwarder.answer_of` does, in events."""

    def __init__(self, world: Simulation, prompt: Prompt, turn: int) -> None:
        self._world = world
        self._prompt = prompt
        self._turn = turn
        self._started = world.now
        self.attempts = Attempts(world._budget, world.now)
        self._try()

    def _try(self) -> None:
        world = self._world
        try:
            assignment = world.fleet.assign(
                "m", self._prompt.keys, now=world.now, streamed=True, tried=self.attempts.tried
            )
        except JanServeError:
            self._fail()
            return
        world.result.retried += self.attempts.asked > 0
        self.attempts.tried.append(assignment.node)
        world._sent[assignment.node] += 1
        real = world.nodes[assignment.node]
        if real.is_up and not real.refuses:
            _Attempt(self, world, assignment, real)
            return

        def refused() -> None:
            assignment.end(Outcome.FAILED, world.now)
            self.ended(Ending.REFUSED if real.is_up else Ending.UNREACHED, assignment)

        world.later(NOTICE_S, refused)

    def _fail(self) -> None:
        self._world.result.failed += 1
        self._world._next(self._prompt, self._turn)

    def ended(self, ending: Ending, assignment: Assignment) -> None:
        """An attempt before the answer had begun."""
        if ending is not Ending.REFUSED:
            self._world.suspect(assignment.node)
        if self._world._load.retries and self.attempts.may_go_on(ending, assignment, self._world.now):
            self._try()
        else:
            self._fail()

    def cut(self) -> None:
        self._world.result.cut += 1
        self._world._next(self._prompt, self._turn)

    def begun(self, cached: int) -> None:
        result = self._world.result
        result.first_s.append(self._world.now - self._started)
        result.prompt += self._prompt.tokens[-1]
        result.cached += cached
        result.known += self._world._ever.hit(self._prompt)
        self._world._ever.store(self._prompt)

    def done(self) -> None:
        self._world.result.done += 1
        self._world._next(self._prompt, self._turn)


class _Attempt:
    def __init__(self, request: _Request, world: Simulation, assignment: Assignment, real: SimNode) -> None:
        self._request = request
        self._world = world
        self._assignment = assignment
        self._cached: int | None = None
        self._job = Job(request._prompt, self._first, self._end, self._lost)
        if real.is_hole:
            world.later(FIRST_BYTE_S, lambda: self._give_up(Ending.FINAL))
        self._patience_s = request.attempts.patience_s(assignment)
        if self._patience_s is not None:
            world.later(self._patience_s, self._look)
        real.submit(self._job)

    def _look(self) -> None:
        assert self._patience_s is not None
        world, assignment = self._world, self._assignment
        if self._job.is_over or self._cached is not None:
            return
        again_s = self._request.attempts.next_look_s(
            assignment, self._patience_s, world.fleet, "m", Role.HYBRID, world.now
        )
        if again_s:
            world.later(again_s, self._look)
        else:
            self._give_up(Ending.SILENT)

    def _first(self, cached: int) -> None:
        self._cached = cached
        self._assignment.node.heard_s = self._world.now
        self._assignment.begin_answer(self._world.now)
        self._request.begun(cached)

    def _end(self) -> None:
        prompt = self._job.prompt.tokens[-1]
        self._assignment.end(Outcome.DONE, self._world.now, prompt_tokens=prompt, cached_tokens=self._cached)
        self._request.done()

    def _lost(self) -> None:
        self._assignment.end(Outcome.FAILED, self._world.now)
        if self._cached is None:
            self._world.later(NOTICE_S, lambda: self._request.ended(Ending.RESET, self._assignment))
        else:
            self._request.cut()

    def _give_up(self, ending: Ending) -> None:
        if not self._job.is_over:
            self._job.is_over = True
            self._assignment.end(Outcome.FAILED, self._world.now)
            self._request.ended(ending, self._assignment)


# What others do


def least_in_flight(fleet: Fleet, rng: Random) -> Strategy:
    """LMDeploy's default without given speeds; ties by chance, without its cost."""

    def choose(candidates: Candidates) -> Node | None:
        nodes = list(candidates.pool)
        start = int(rng.random() * len(nodes))
        best: Node | None = None
        for node in itertools.chain(nodes[start:], nodes[:start]):
            if candidates.accepts(node):
                if not node.in_flight:
                    return node
                if best is None or node.in_flight < best.in_flight:
                    best = node
        return best

    return choose


def two_choices(fleet: Fleet, rng: Random) -> Strategy:
    def choose(candidates: Candidates) -> Node | None:
        return min(candidates.drawn(2), key=lambda node: node.in_flight, default=None)

    return choose


def random_choice(fleet: Fleet, rng: Random) -> Strategy:
    def choose(candidates: Candidates) -> Node | None:
        return next(iter(candidates.drawn(1)), None)

    return choose


def hashed(fleet: Fleet, rng: Random) -> Strategy:
    """Consistent hashing of the conversation: its first message after the system prompt."""

    def choose(candidates: Candidates) -> Node | None:
        keys = candidates.keys.keys
        return next(
            (node for node in candidates.pool.at(keys[min(1, len(keys) - 1)]) if candidates.accepts(node)),
            None,
        )

    return choose


def longest_prefix(fleet: Fleet, rng: Random) -> Strategy:
    """Always the node with the longest prefix, as Ray Serve's router by default."""

    def choose(candidates: Candidates) -> Node | None:
        known = [node for node in fleet.index.longest(candidates.keys.keys) if candidates.accepts(node)]
        return known[-1] if known else next(iter(candidates.drawn(1)), None)

    return choose


CONTENDERS: Final[dict[str, StrategyName | Baseline]] = {
    "prefix (ours)": "prefix",
    "least in flight": least_in_flight,
    "two choices": two_choices,
    "random": random_choice,
    "hash": hashed,
    "longest prefix": longest_prefix,
}
