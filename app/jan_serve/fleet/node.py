"""One server behind the proxy: what it serves, how it is, how busy it is.

How many prompt tokens a second it gets through is learned from the time until answers begin. How much is asked of it
counts the prompt tokens of late, whether they were cached or not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from math import exp
from typing import Final

from jan_serve.fleet.breaker import Breaker

WINDOW_S: Final = 60.0


class Demand:
    """An exponential mean. `now` does not go back."""

    __slots__ = ("_at_s", "_tokens")

    def __init__(self) -> None:
        self._tokens = 0.0
        self._at_s = 0.0

    def add(self, tokens: float, now: float) -> None:
        self._tokens = self._left(now) + tokens
        self._at_s = now

    def tokens_per_s(self, now: float) -> float:
        return self._left(now) / WINDOW_S

    def _left(self, now: float) -> float:
        return self._tokens * exp((self._at_s - now) / WINDOW_S)


FIRST_TOKENS_PER_S: Final = 1000.0
_PRIOR_TOKENS: Final = 500.0
_KEEP: Final = 0.98
_MIN_S: Final = 1e-3
_HOPE: Final = 1.5
"""An unknown node counts as somewhat better than the average, so that it gets its first requests."""


class WorkRate:
    """Tokens over seconds, of the last requests. The tokens of an observation are those to compute for it and for the
    ones that waited before it, so that load does not look like a slow machine. Short prompts say little and weigh
    little: both sums decay, and long ones dominate."""

    __slots__ = ("_average", "_is_streamed", "_relative", "_seconds", "_tokens", "is_measured")

    def __init__(self, average: WorkRate | None = None, relative: float = 1.0) -> None:
        """average: of all nodes. relative: to that, as the node's owner says; only the start."""
        self._average = average
        self._relative = min(max(relative, 1e-3), 1e3)
        self._tokens = _PRIOR_TOKENS
        self._seconds = _PRIOR_TOKENS / FIRST_TOKENS_PER_S
        self.is_measured = False
        self._is_streamed = False

    @property
    def tokens_per_s(self) -> float:
        if not self.is_measured and self._average is not None:
            return self._average.tokens_per_s * self._relative * _HOPE
        return self._tokens / self._seconds

    def observe(self, tokens: float, seconds: float, *, streamed: bool) -> None:
        """streamed: until the first byte; else until the whole answer, which counts until there is something better."""
        average = self._average
        if not self.is_measured and average is not None:
            self._seconds = _PRIOR_TOKENS / (average.tokens_per_s * self._relative)
        if average is not None:
            average.observe(tokens, seconds, streamed=streamed)
        if self._is_streamed and not streamed:
            return
        self.is_measured = True
        self._is_streamed = streamed
        self._tokens = self._tokens * _KEEP + max(tokens, 1.0)
        self._seconds = self._seconds * _KEEP + max(seconds, _MIN_S)


MAX_LATENCIES: Final = 15
"""Latencies kept of finished requests, as in LMDeploy."""


class Role(IntEnum):
    """Work of a node, with LMDeploy's numbers."""

    HYBRID = 1
    PREFILL = 2
    DECODE = 3


class NodeState(Enum):
    """Only a healthy node gets requests."""

    JOINING = "joining"
    HEALTHY = "healthy"
    SLEEPING = "sleeping"
    DRAINING = "draining"
    LOST = "lost"


class CacheEpoch:
    """A node's prefix cache from one start to its end: one assignment makes all entries of the index void."""

    __slots__ = ("is_over", "node")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.is_over = False


@dataclass(slots=True, eq=False)
class Node:
    """url: canonical, without a slash at the end. aliases: further names of its models, in no list. speed: as its
    owner gave it, relative to other nodes; None if unknown. pid, uptime_s: of the server, if it says, which it did at
    uptime_at_s. others: open requests that did not come through this proxy. unanswered: of in_flight, those whose
    answer has not begun; pending_tokens: of their prompts. declares: it named its models itself, and has no others.
    listed_s: when it was last asked for them.
    probe_failures: in a row. seen_s: of the last good probe or registration. heard_s: of the last bytes of an answer.
    lived_s: of the last good probe that did not deny having our requests. counts_open: it says how many it has.
    failing_s: of the first failure since the last success. waiting: when the answers of streamed requests should
    begin, the oldest first. trust: the share of what it should have cached that it has, as it reports."""

    url: str
    role: Role
    models: tuple[str, ...]
    speed: float | None
    breaker: Breaker
    rate: WorkRate
    state: NodeState = NodeState.JOINING
    reason: str = "not asked yet"
    pid: int | None = None
    uptime_s: float = 0.0
    uptime_at_s: float = 0.0
    in_flight: int = 0
    unanswered: int = 0
    others: int = 0
    pending_tokens: float = 0.0
    declares: bool = False
    listed_s: float = 0.0
    aliases: tuple[str, ...] = ()
    probe_failures: int = 0
    seen_s: float = 0.0
    heard_s: float = float("-inf")
    lived_s: float = float("-inf")
    counts_open: bool = False
    failing_s: float | None = None
    waiting: dict[object, float] = field(default_factory=dict[object, float])
    latencies: deque[float] = field(default_factory=lambda: deque[float](maxlen=MAX_LATENCIES))
    requests: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    trust: float = 1.0
    demand: Demand = field(default_factory=Demand)
    cache: CacheEpoch = field(init=False)

    def __post_init__(self) -> None:
        self.cache = CacheEpoch(self)

    @property
    def name(self) -> str:
        """Host and port, with the path if it has one."""
        return self.url.split("://", 1)[1]

    @property
    def weight(self) -> float:
        """The given speed, 1 if unknown."""
        return self.speed if self.speed is not None else 1.0

    @property
    def mean_latency_s(self) -> float | None:
        return sum(self.latencies) / len(self.latencies) if self.latencies else None

    def silent_s(self, now: float) -> float:
        """Seconds without a byte from it although the answer to its oldest request should have begun."""
        return max(0.0, now - max(self.heard_s, next(iter(self.waiting.values())))) if self.waiting else 0.0

    def note_open(self, open_requests: int | None, unanswered: int, now: float) -> None:
        """It is well, with so many open requests if it says so, and should have the unanswered ones among them."""
        self.counts_open = open_requests is not None
        if open_requests is not None:
            self.others = max(0, open_requests - self.in_flight)
        if open_requests is None or open_requests >= unanswered:
            self.lived_s = now

    def forget_cache(self) -> None:
        self.cache.is_over = True
        self.cache = CacheEpoch(self)

    def accepts(self, now: float) -> bool:
        return self.state is NodeState.HEALTHY and self.breaker.admits(now)


def hit_rate(nodes: Sequence[Node]) -> float | None:
    """Share of prompt tokens that these nodes had cached; None without figures."""
    prompt = sum(node.prompt_tokens for node in nodes)
    return sum(node.cached_tokens for node in nodes) / prompt if prompt else None
