"""Chooses the best choices of a request with best_of > n. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import msgspec

from jan_serve.core.events import Finished, TextDelta

ChoiceEvent = TextDelta | Finished


class BestOf:
    """Collects all choices, then returns the n with the highest mean log-probability, best first, as choices 0 to n-1.

    keep_tokens: False drops tokens, which the request does not want.
    """

    def __init__(self, n: int, *, keep_tokens: bool) -> None:
        self._n = n
        self._keep_tokens = keep_tokens
        self._events: defaultdict[int, list[ChoiceEvent]] = defaultdict(list)
        self._scores: dict[int, float] = {}

    def add(self, event: ChoiceEvent) -> None:
        self._events[event.index].append(event)
        if isinstance(event, Finished):
            self._scores[event.index] = (
                event.mean_logprob if event.mean_logprob is not None else float("-inf")
            )

    def winners(self) -> Iterator[ChoiceEvent]:
        """The events of the best choices, once all are finished. Ties keep their order."""
        ranked = sorted(self._scores, key=lambda index: self._scores[index], reverse=True)
        for rank, index in enumerate(ranked[: self._n]):
            for event in self._events[index]:
                yield self._ranked(event, rank)

    def _ranked(self, event: ChoiceEvent, rank: int) -> ChoiceEvent:
        if isinstance(event, TextDelta) and not self._keep_tokens:
            return msgspec.structs.replace(event, index=rank, tokens=())
        return msgspec.structs.replace(event, index=rank)
