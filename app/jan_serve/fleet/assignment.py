"""One request at one node, from the choice to the outcome: it alone counts the node's load up and down."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from jan_serve.fleet.node import Node
from jan_serve.fleet.prefixes import FleetPrefixIndex, PromptKeys

_MIN_GUESS: Final = 256.0
"""Tokens: shorter guesses say nothing about a cache."""
_KEEP: Final = 0.9


class Outcome(Enum):
    """REFUSED: the node works, and computed nothing (4xx). LEFT: the client was gone first."""

    DONE = auto()
    FAILED = auto()
    REFUSED = auto()
    LEFT = auto()


class Assignment:
    """Call `begin_answer` at the first byte of the answer, and `end` once in every case. Times in seconds."""

    __slots__ = (
        "_index", "_is_begun", "_is_ended", "_known", "_pending", "_trial", "_work", "expected_s", "guess",
        "is_streamed", "is_timed", "keys", "node", "started",
    )  # fmt: skip

    def __init__(
        self, node: Node, keys: PromptKeys, index: FleetPrefixIndex, now: float, *, streamed: bool
    ) -> None:
        """guess: tokens of the prompt that the node should have cached. expected_s: until the answer begins, if it is
        timed: whole answers begin with their end, and a node without measurements may load its model first."""
        self.node = node
        self.keys = keys
        self.started = now
        self._known = keys.tokens_to(index.depths(keys.keys, (node,)).get(node, 0))
        self.guess = self._known * node.trust
        self._index = index
        self.is_streamed = streamed
        self.is_timed = streamed and node.rate.is_measured
        self._is_begun = self._is_ended = False
        self._pending = max(0.0, keys.tokens - self.guess)
        self._work = node.pending_tokens + self._pending
        self.expected_s = self._work / node.rate.tokens_per_s
        if streamed:
            node.waiting[self] = now + self.expected_s
        node.in_flight += 1
        node.unanswered += 1
        node.requests += 1
        node.pending_tokens += self._pending
        node.demand.add(keys.tokens, now)
        self._trial = node.breaker.begin()
        index.record(keys.keys, node)

    @property
    def is_stranded(self) -> bool:
        """Whether it was sent before its node began to fail."""
        return self.node.failing_s is not None and self.started < self.node.failing_s

    @property
    def lived_s(self) -> float:
        """When its node last gave a sign of life: bytes of an answer to anybody; also a good answer about itself, if
        nothing says when the answer begins."""
        heard_s = max(self.started, self.node.heard_s)
        return heard_s if self.is_timed else max(heard_s, self.node.lived_s)

    @property
    def worked_s(self) -> float:
        """When its node last said that it works on it."""
        return max(self.started, self.node.lived_s) if self.node.counts_open else self.started

    def begin_answer(self, now: float) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        self.node.unanswered -= 1
        self.node.waiting.pop(self, None)
        self.node.pending_tokens = max(0.0, self.node.pending_tokens - self._pending)
        if self.is_streamed and not self._is_ended:
            self.node.rate.observe(self._work, now - self.started, streamed=True)

    def end(
        self,
        outcome: Outcome,
        now: float,
        *,
        prompt_tokens: int | None = None,
        cached_tokens: int | None = None,
    ) -> None:
        """prompt_tokens, cached_tokens: as the node reports them. A second call has no effect."""
        if self._is_ended:
            return
        self._is_ended = True
        node = self.node
        self.begin_answer(now)
        node.in_flight -= 1
        match outcome:
            case Outcome.DONE:
                node.heard_s, node.failing_s = now, None
                node.breaker.succeed(now)
                node.latencies.append(now - self.started)
                if not self.is_streamed:
                    node.rate.observe(self._work, now - self.started, streamed=False)
                if prompt_tokens and cached_tokens is not None:
                    self._learn(prompt_tokens, min(cached_tokens, prompt_tokens))
            case Outcome.FAILED:
                node.failures += 1
                node.failing_s = now if node.failing_s is None else node.failing_s
                node.breaker.fail(now, self._trial)
                self._index.forget(self.keys.keys, node)
            case Outcome.REFUSED:
                node.failing_s = None
                node.breaker.succeed(now)
                self._index.forget(self.keys.keys, node)
            case Outcome.LEFT:
                node.breaker.leave(self._trial)

    def _learn(self, prompt_tokens: int, cached_tokens: int) -> None:
        """How much of what it should have cached the node still has: one that holds too many prompts drops some."""
        node = self.node
        node.prompt_tokens += prompt_tokens
        node.cached_tokens += cached_tokens
        if self._known >= _MIN_GUESS:
            actual = min(1.0, self.keys.tokens * cached_tokens / prompt_tokens / self._known)
            node.trust = _KEEP * node.trust + (1 - _KEEP) * actual
