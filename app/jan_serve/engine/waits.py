"""How long requests wait for others: one sum for all of them, so that a step of many costs no more than one of few."""

from __future__ import annotations

from collections.abc import Iterable

from jan_serve.engine.sequence import RequestState, Sequence


def _states(sequences: Iterable[Sequence]) -> dict[int, RequestState]:
    return {id(sequence.state): sequence.state for sequence in sequences}


class Waits:
    """Steps that read prompts keep all other requests waiting; steps that write for some, those that they leave out."""

    def __init__(self) -> None:
        self._reading_ns = 0

    def begin(self, state: RequestState) -> None:
        state.others_ns -= self._reading_ns

    def step_read(self, readers: Iterable[Sequence], seconds: float) -> None:
        nanoseconds = round(seconds * 1e9)
        self._reading_ns += nanoseconds
        for state in _states(readers).values():
            state.others_ns -= nanoseconds

    def step_wrote(self, writers: Iterable[Sequence], running: Iterable[Sequence], seconds: float) -> None:
        waiting = _states(running)
        for key in waiting.keys() - _states(writers).keys():
            waiting[key].others_ns += round(seconds * 1e9)

    def seconds(self, state: RequestState) -> float:
        """Seconds since `begin`."""
        return max(0, state.others_ns + self._reading_ns) / 1e9
