"""What a step computes of one sequence: the scheduler's choice, and the draft after it."""

from __future__ import annotations

from typing import Literal

import msgspec

from jan_serve.engine.sequence import Sequence
from jan_serve.engine.tokens import Tokens


class Draft(msgspec.Struct, frozen=True):
    """Tokens to compute after the newest one. The first `guessed` are expected, the others only fill the step.

    match_length: of the look-up; None: the draft model guessed.
    """

    tokens: Tokens
    guessed: int
    match_length: int | None = None


class PlanItem(msgspec.Struct, frozen=True):
    """`count` tokens of a sequence, from its first uncomputed one, for the next batch.

    draft: to compute after them. Only after a single newest token.
    """

    sequence: Sequence
    count: int
    outputs: Literal["none", "last", "all"]
    draft: Draft | None = None

    @property
    def size(self) -> int:
        return self.count if self.draft is None else self.count + len(self.draft.tokens)

    @property
    def is_media(self) -> bool:
        """Whether it computes cells of an image or a sound. Before the batch is committed."""
        return self.sequence.media.chunk_at(self.sequence.num_computed) is not None

    @property
    def is_decode(self) -> bool:
        return not self.sequence.is_prefilling
