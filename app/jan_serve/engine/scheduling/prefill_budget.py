"""What the pacer is told about the sequences that have their turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from jan_serve.engine.scheduling.pacing import Pacer
from jan_serve.engine.scheduling.prefill_costs import CachePosition
from jan_serve.engine.sequence import Sequence

_FIRST_TOKENS: Final = 3
"""The one that came first is ahead by a token for each step that the others' prompts take."""

_BEGUN_TOKENS: Final = 8
"""A stream of fewer tokens has only begun: a pause is hardly noticed yet."""


def prefill_budget(pacer: Pacer, turn: Iterable[Sequence], *, cells: int) -> int:
    """Prefill tokens that the next step carries at most. cells: in use in the KV cache."""
    prefilling: list[Sequence] = []
    streams: list[Sequence] = []
    for sequence in turn:
        (prefilling if sequence.is_prefilling else streams).append(sequence)
    most = max((stream.num_generated for stream in streams), default=0)
    return pacer.prefill_tokens(
        len(streams),
        len(prefilling),
        CachePosition(prefilling[0].num_computed if prefilling else 0, cells),
        available=sum(sequence.num_prefill for sequence in prefilling),
        late_tokens=_uncomputed(prefilling) if most < _BEGUN_TOKENS else None,
        together_tokens=_uncomputed(_came_with(streams, prefilling)) if most <= _FIRST_TOKENS else 0,
    )


def _came_with(streams: Iterable[Sequence], prefilling: Iterable[Sequence]) -> Iterable[Sequence]:
    """Those whose requests had arrived when the last of the streams had its first token."""
    last = max((stream.state.first_token or 0.0 for stream in streams), default=0.0)
    return (sequence for sequence in prefilling if sequence.state.arrived <= last)


def _uncomputed(sequences: Iterable[Sequence]) -> int:
    return sum(sequence.num_uncomputed for sequence in sequences)
