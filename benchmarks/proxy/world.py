"""A model of nodes and their users for the simulation: a model of the world, not the world.

A node has slots; a prompt waits for one, then for the prompts before it, then takes its uncached tokens over the
prefill speed; its answer takes its tokens over the decode speed, and holds the slot. Its cache holds the most recently
used prefixes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from jan_serve.fleet.prefixes import BYTES_PER_TOKEN, PromptKeys


@dataclass(frozen=True, slots=True)
class Kind:
    """prefill, decode: tokens a second. cache: tokens."""

    name: str
    prefill: float
    decode: float
    slots: int
    cache: int


LAPTOP: Final = Kind("laptop", 250.0, 12.0, 2, 24_000)
DESKTOP: Final = Kind("desktop", 2000.0, 45.0, 4, 96_000)
RACK: Final = Kind("rack", 9000.0, 60.0, 16, 400_000)


@dataclass(slots=True)
class Prompt:
    """segments: ids of ever longer prefixes. tokens: length of each prefix. answer: tokens to generate."""

    segments: tuple[int, ...]
    tokens: tuple[int, ...]
    answer: int

    @property
    def keys(self) -> PromptKeys:
        """The keys that the proxy would make from the text, one for each message."""
        ends = tuple(int(tokens * BYTES_PER_TOKEN) for tokens in self.tokens)
        return PromptKeys(self.segments, ends, ends[-1])


class Cache:
    """Least recently used first; a prefix is never older than one that begins with it."""

    def __init__(self, tokens: int) -> None:
        self._limit = tokens
        self._held: OrderedDict[int, int] = OrderedDict()
        self._size = 0

    def hit(self, prompt: Prompt) -> int:
        """Tokens of the longest prefix that is there."""
        for segment, tokens in zip(reversed(prompt.segments), reversed(prompt.tokens), strict=True):
            if segment in self._held:
                return tokens
        return 0

    def store(self, prompt: Prompt) -> None:
        before = 0
        own: list[tuple[int, int]] = []
        for segment, tokens in zip(prompt.segments, prompt.tokens, strict=True):
            own.append((segment, tokens - before))
            before = tokens
        for segment, tokens in reversed(own):
            if segment not in self._held:
                self._size += tokens
            self._held[segment] = tokens
            self._held.move_to_end(segment)
        while self._size > self._limit and self._held:
            _, tokens = self._held.popitem(last=False)
            self._size -= tokens

    def clear(self) -> None:
        self._held.clear()
        self._size = 0


@dataclass(slots=True)
class Job:
    """A request at a node. first: called when the answer begins; end: when it is complete."""

    prompt: Prompt
    first: Callable[[int], None]
    end: Callable[[], None]
    lost: Callable[[], None]
    is_over: bool = False


@dataclass(slots=True)
class SimNode:
    """later: schedules a call after so many seconds. slowness: factor on every time."""

    kind: Kind
    later: Callable[[float, Callable[[], None]], None]
    cache: Cache = field(init=False)
    is_up: bool = True
    is_hole: bool = False
    refuses: bool = False
    slowness: float = 1.0
    busy: int = 0
    waiting: deque[Job] = field(default_factory=deque[Job])
    prefilling: deque[Job] = field(default_factory=deque[Job])
    running: list[Job] = field(default_factory=list[Job])

    def __post_init__(self) -> None:
        self.cache = Cache(self.kind.cache)

    def submit(self, job: Job) -> None:
        self.running.append(job)
        if not self.is_hole:
            self.waiting.append(job)
            self._admit()

    def die(self) -> None:
        """All its requests are lost, and its cache."""
        self.is_up = False
        lost, self.running = self.running, []
        self.waiting.clear()
        self.prefilling.clear()
        self.busy = 0
        self.cache.clear()
        for job in lost:
            job.is_over = True
            job.lost()

    def _admit(self) -> None:
        while self.waiting and self.busy < self.kind.slots:
            self.busy += 1
            self.prefilling.append(self.waiting.popleft())
            if len(self.prefilling) == 1:
                self._prefill()

    def _prefill(self) -> None:
        job = self.prefilling[0]
        cached = self.cache.hit(job.prompt)
        took = (job.prompt.tokens[-1] - cached + 8) / self.kind.prefill * self.slowness
        self.later(took, lambda: self._begin(job, cached))

    def _begin(self, job: Job, cached: int) -> None:
        if job.is_over:
            return
        self.prefilling.popleft()
        self.cache.store(job.prompt)
        if self.prefilling:
            self._prefill()
        self.later(job.prompt.answer / self.kind.decode * self.slowness, lambda: self._end(job))
        job.first(cached)

    def _end(self, job: Job) -> None:
        if job.is_over:
            return
        job.is_over = True
        self.running.remove(job)
        self.busy -= 1
        self._admit()
        job.end()


class Prompts:
    """System prompts of 0.6 to 6 thousand tokens, the popular ones more often (Zipf), and conversations over them."""

    def __init__(self, rng: Random, systems: int = 60, turn: int = 400, answer: int = 150) -> None:
        self._rng = rng
        self._systems = [(rng.getrandbits(62), rng.randint(600, 6000)) for _ in range(systems)]
        self._weights = [1 / (rank + 1) for rank in range(systems)]
        self._turn = turn
        self._answer = answer

    def begin(self) -> Prompt:
        """A conversation's first prompt."""
        if not self._systems:
            return self.extend(Prompt((), (), 0))
        segment, tokens = self._rng.choices(self._systems, self._weights)[0]
        return self.extend(Prompt((segment,), (tokens,), 0))

    def extend(self, prompt: Prompt) -> Prompt:
        """The next turn: the answer is part of the prompt then."""
        spread = self._rng.uniform(0.3, 1.7)
        length = (prompt.tokens[-1] if prompt.tokens else 0) + max(8, int(self._turn * spread))
        segments = (*prompt.segments, self._rng.getrandbits(62))
        answer = max(4, int(self._answer * self._rng.uniform(0.3, 1.7)))
        return Prompt(segments, (*prompt.tokens, length), answer)
